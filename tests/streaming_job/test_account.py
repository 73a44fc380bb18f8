"""What a progress record tells beyond its own batch."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.registry import ModelRef
from streaming_job.progress.writer import Account
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.record import Batch
from streaming_job.settings import JobSettings

pytestmark = pytest.mark.unit

MODEL = ModelRef("card-fraud", "1", "models:/card-fraud/1", "d" * 64, "f" * 64)


def outcome(group: int, cards: int, rollout: int | None = None) -> Outcome:
    """Of a batch in which one key group had something to do."""
    made = Outcome()
    made.sizes = {group: {"cards": cards, "events": 10 * cards, "local_bytes": 100 * cards}}
    if rollout is not None:
        made.rollout = {"number": rollout, "rollout_id": f"r{rollout}", "model": MODEL}
    return made


def test_groups_and_rollouts_are_told_of_in_batches_without_them(tmp_path: Path) -> None:
    account = Account(
        JobSettings(
            bootstrap_servers="none", mlflow_tracking_uri="none", checkpoint="none", work_dir=tmp_path
        )
    )
    records: list[dict[str, Any]] = []
    for number, made in enumerate((outcome(0, 5, rollout=1), outcome(1, 7), outcome(0, 6))):
        batch = Batch("job", "query", number, 0, ())
        account.prepare(batch)
        records.append(json.loads(account.record(batch, made, 1_000)))
    assert [record["state"]["cards"] for record in records] == [5, 12, 13]
    assert [record["state"]["events"] for record in records] == [50, 120, 130]
    assert [record["rollout_id"] for record in records] == ["r1", "r1", "r1"]
    assert {record["model"]["version"] for record in records} == {"1"}


def test_the_newest_rollout_of_all_groups_is_told() -> None:
    total = Outcome()
    for made in (outcome(0, 1, rollout=3), outcome(1, 1, rollout=10), outcome(2, 1)):
        total.add(made)
    assert total.rollout is not None
    assert total.rollout["rollout_id"] == "r10"

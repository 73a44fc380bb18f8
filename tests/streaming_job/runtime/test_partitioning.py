"""Settings fixed by the first start, which later starts must repeat."""

import threading
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from harness.settings_of_nowhere import settings

from streaming_job import job
from streaming_job.contracts.topics import Topics
from streaming_job.log.losses import NOTHING_LOST
from streaming_job.log.partitioner import Layout, Partitioner
from streaming_job.runtime.checkpoint import FixedSettings
from streaming_job.runtime.partitioning import require_fixed, require_partitioner
from streaming_job.runtime.preconditions import StartUpError

pytestmark = pytest.mark.unit

FIXED = FixedSettings(
    "card-fraud", Layout("transactions", Partitioner.MURMUR2, 6), 2, None, ("model-rollouts",)
)


def test_the_same_settings_are_accepted() -> None:
    require_fixed(FIXED, settings(), 6)


@pytest.mark.parametrize("begun", [[], [0]])
def test_what_a_refused_start_has_fixed_binds_no_later_one_before_the_first_epoch(
    begun: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Mock(
        **{"fixed.return_value": FIXED, "epochs.side_effect": {"offsets": begun, "commits": []}.get}
    )
    for name in ("require_partitioner", "wait_for_snapshot"):
        monkeypatch.setattr(job, name, Mock())
    monkeypatch.setattr(job, "count_partitions", lambda _: 6)
    monkeypatch.setattr(job.lost_log, "find", lambda _: NOTHING_LOST)
    start = job.Job.__new__(job.Job)
    start._settings, start._checkpoint, start._stop = settings(key_groups=3), checkpoint, threading.Event()
    if begun:
        with pytest.raises(StartUpError, match="FRAUD_KEY_GROUPS=2, the settings say 3"):
            start._fixed()
    else:
        assert start._fixed().groups == 3
        assert checkpoint.fix.call_args.args[0].key_groups == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"job_id": "other"},
            "FRAUD_JOB_ID=card-fraud, the settings say other; set FRAUD_JOB_ID=card-fraud, or give the other "
            "job a checkpoint of its own",
        ),
        (
            {"topics": Topics(transactions="t2")},
            "FRAUD_TOPICS__TRANSACTIONS=transactions, the settings say t2",
        ),
        ({"partitioner": Partitioner.CRC32}, "FRAUD_PARTITIONER=murmur2, the settings say crc32"),
        ({"key_groups": 3}, "FRAUD_KEY_GROUPS=2, the settings say 3; .* an empty checkpoint take over"),
        (
            {"topics": Topics(model_rollouts="r2")},
            "FRAUD_TOPICS__MODEL_ROLLOUTS=model-rollouts, the settings say r2; .* checkpoint that goes with",
        ),
        ({"merchant_facts": True}, "FRAUD_MERCHANT_FACTS=false, .* true; .* switch to a replay"),
    ],
)
def test_changed_settings_are_named_with_their_former_values(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(StartUpError, match=words):
        require_fixed(FIXED, settings(**changes), 6)


def test_merchant_facts_keep_their_label_delay() -> None:
    fixed = replace(FIXED, label_delay_ms=5)
    require_fixed(fixed, settings(merchant_facts=True, label_delay_ms=5), 6)
    for changes, words in (
        ({"merchant_facts": False}, "FRAUD_MERCHANT_FACTS=true, the settings say false"),
        ({"merchant_facts": True, "label_delay_ms": 6}, "FRAUD_LABEL_DELAY_MS=5, the settings say 6"),
    ):
        with pytest.raises(StartUpError, match=words):
            require_fixed(fixed, settings(**changes), 6)


@pytest.mark.parametrize("partitions", [5, 7])
def test_another_number_of_partitions_is_refused(partitions: int) -> None:
    with pytest.raises(StartUpError, match=f"has {partitions} partitions, and had 6 when the job began"):
        require_fixed(FIXED, settings(), partitions)


def test_only_a_drain_ignores_partitions_that_were_added() -> None:
    with pytest.raises(StartUpError, match=r"FRAUD_DRAIN=true.*`fraud job status --move-to transactions`"):
        require_fixed(FIXED, settings(), 7)
    require_fixed(FIXED, settings(drain=True), 7)
    with pytest.raises(StartUpError, match="has 5 partitions"):
        require_fixed(FIXED, settings(drain=True), 5)


def test_more_groups_than_partitions_are_refused_at_a_first_start() -> None:
    with pytest.raises(StartUpError, match="set FRAUD_KEY_GROUPS=2 at most"):
        require_partitioner(settings(key_groups=3), 2)

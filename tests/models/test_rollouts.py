"""Rollout events keep their contract both ways."""

import json
from dataclasses import replace

import pytest

from models.policy import Policy
from models.registry import ModelRef
from models.rollouts import Rollout
from streaming_job.contracts import ContractError

pytestmark = pytest.mark.unit

ROLLOUT = Rollout(
    rollout_id="card-fraud-3",
    model=ModelRef("card-fraud", "3", "models:/card-fraud/3", "ab" * 32, "cd" * 32),
    policy=Policy(threshold=0.75, max_count_5m=6),
    created_by="someone",
    created_at=1_700_000_000_000,
)


def test_a_rollout_comes_back_as_it_was_written() -> None:
    assert Rollout.from_json(ROLLOUT.to_json()) == ROLLOUT


def test_unknown_fields_are_tolerated() -> None:
    record = json.loads(ROLLOUT.to_json())
    record["more"] = 1
    record["model"]["more"] = record["policy"]["more"] = 2
    assert Rollout.from_json(json.dumps(record).encode()) == ROLLOUT


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"\xff", b"[]", b"{}", ROLLOUT.to_json().replace(b"champion", b"emperor")],
)
def test_what_breaks_the_contract_is_refused(value: bytes) -> None:
    with pytest.raises(ContractError):
        Rollout.from_json(value)


def test_what_would_break_the_contract_is_not_written() -> None:
    with pytest.raises(ContractError):
        replace(ROLLOUT, rollout_id="").to_json()
    with pytest.raises(ContractError):
        replace(ROLLOUT, model=replace(ROLLOUT.model, digest="short")).to_json()

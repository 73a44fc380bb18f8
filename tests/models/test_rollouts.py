"""Rollout events keep their contract both ways."""

import json
from dataclasses import replace

import pytest

from models.policy import Policy
from models.registry import ModelRef
from models.rollouts import Rollout, Withdrawal, read
from streaming_job.contracts import ContractError

pytestmark = pytest.mark.unit

ROLLOUT = Rollout(
    rollout_id="card-fraud-3",
    model=ModelRef("card-fraud", "3", "models:/card-fraud/3", "ab" * 32, ("amount:1", "count_1m:2")),
    policy=Policy(threshold=0.75, max_count_5m=6),
    created_by="someone",
    created_at=1_700_000_000_000,
)


def test_a_rollout_comes_back_as_it_was_written() -> None:
    assert read(ROLLOUT.to_json()) == ROLLOUT


def test_unknown_fields_are_tolerated() -> None:
    record = json.loads(ROLLOUT.to_json())
    record["more"] = 1
    record["model"]["more"] = record["policy"]["more"] = 2
    assert read(json.dumps(record).encode()) == ROLLOUT


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"\xff", b"[]", b"{}", ROLLOUT.to_json().replace(b"champion", b"emperor")],
)
def test_what_breaks_the_contract_is_refused(value: bytes) -> None:
    with pytest.raises(ContractError):
        read(value)


WITHDRAWAL = Withdrawal("card-fraud-3", False, "too many alerts", "someone", 1_700_000_000_000)


def test_a_withdrawal_comes_back_as_it_was_written() -> None:
    assert read(WITHDRAWAL.to_json()) == WITHDRAWAL
    assert WITHDRAWAL.rollout_id == "card-fraud-3"
    with pytest.raises(ContractError):
        replace(WITHDRAWAL, reason="").to_json()


@pytest.mark.parametrize("field", ["rollout_id", "created_by", "name", "version", "uri"])
def test_a_lone_surrogate_breaks_the_contract(field: str) -> None:
    record = json.loads(ROLLOUT.to_json())
    (record if field in record else record["model"])[field] = "x\ud800"
    with pytest.raises(ContractError, match="surrogates"):
        read(json.dumps(record).encode())
    with pytest.raises(ContractError, match="surrogates"):
        replace(ROLLOUT, created_by="x\ud800").to_json()


@pytest.mark.parametrize("features", [[], ["amount"], ["amount:1", "amount:1"], "amount:1", [":1"]])
def test_features_are_named_with_their_versions(features: object) -> None:
    record = json.loads(ROLLOUT.to_json())
    record["model"]["features"] = features
    with pytest.raises(ContractError):
        read(json.dumps(record).encode())


def test_what_would_break_the_contract_is_not_written() -> None:
    with pytest.raises(ContractError):
        replace(ROLLOUT, rollout_id="").to_json()
    with pytest.raises(ContractError):
        replace(ROLLOUT, model=replace(ROLLOUT.model, digest="short")).to_json()

"""Labels are decoded as the contract and the oracle say, each by exactly one key group."""

import json
from typing import Any

import pytest
from harness.group_batches import as_records
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.kernels.hashing import hash_string
from feature_store.layout import TRANSACTION_MASK
from loadtests.oracle import Record, merchants
from loadtests.oracle.decode import RefusedError
from streaming_job.contracts import Contract, ContractError, Reason, validate
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.decode import labels
from streaming_job.decode.labels import REASONS, Label
from streaming_job.decode.strict import Rejected
from streaming_job.log.partitioner import KeyGroups, Partitioner

pytestmark = pytest.mark.unit

GOOD: dict[str, Any] = {
    "schema_version": 1, "transaction_id": "t", "card_id": "c", "kind": "verdict", "verdict": "genuine",
    "reason": "travel", "source": "ada", "occurred_at": 5, "event_time": 4, "maturity": "final",
}  # fmt: skip
CHARGEBACK: dict[str, Any] = {
    "transaction_id": "t", "card_id": "c", "merchant_id": "m", "event_time": 4, "reported_at": 5,
    "label": "fraud",
}  # fmt: skip
ODD = st.sampled_from(
    [None, "", "x", 0, 1, 2, -1, 1.0, True, [], {}, "fraud", "genuine", "verdict", "x" * 65]
)
NOTHING = "-"


def changed(good: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The record with some fields changed, or left out."""
    changes = st.dictionaries(st.sampled_from(sorted(good)), ODD | st.just(NOTHING), max_size=2)
    return changes.map(lambda some: {k: v for k, v in {**good, **some}.items() if v != NOTHING})


KINDS = st.sampled_from(["early_warning", "chargeback", "refund", "reversal", "verdict"])
VERDICTS = st.builds(lambda record, kind: {**record, "kind": kind}, changed(GOOD), KINDS) | changed(
    {k: v for k, v in {**GOOD, "kind": "refund"}.items() if k not in ("verdict", "reason")}
)


def ours(record: object, contract: Contract) -> Reason | tuple[str, str, bool | None, int | None]:
    try:
        return labels.read(b"c", json.dumps(record).encode(), contract)
    except Rejected as fault:
        return fault.reason


def oracles(record: object, kind: str) -> Reason | tuple[str, str, bool | None, int | None]:
    try:
        return merchants.read_label(Record("labels", 0, 0, 9, b"c", json.dumps(record).encode()), kind)
    except RefusedError as fault:
        return fault.reason


@examples(300)
@given(VERDICTS)
def test_labels_agree_with_the_contract_and_the_oracle(record):
    features = ours(record, Contract.LABEL)
    assert features == oracles(record, "label")
    try:
        validate(Contract.LABEL, record)
    except ContractError:
        assert isinstance(features, Reason)
    else:
        # the decoder refuses more than the schema: 1.0 for an integer, and a card other than the key, c
        has_float = any(isinstance(value, float) for value in record.values())
        assert isinstance(features, Reason) == (record["card_id"] != "c" or has_float)


@examples(150)
@given(changed(CHARGEBACK))
def test_chargebacks_agree_with_the_oracle(record):
    assert ours(record, Contract.CHARGEBACK) == oracles(record, "chargeback")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kind": "early_warning"}, True),
        ({"kind": "chargeback"}, True),
        ({"kind": "refund"}, None),
        ({"kind": "reversal"}, False),
        ({"kind": "verdict", "verdict": "fraud"}, True),
        *(({"kind": "verdict", "verdict": "genuine", "reason": reason}, False) for reason in REASONS),
    ],
)
def test_each_kind_of_label_has_its_outcome(changes, says):
    record = {k: v for k, v in GOOD.items() if k not in ("verdict", "reason")} | changes
    assert ours(record, Contract.LABEL) == ("c", "t", says, 4)


def test_each_label_belongs_to_one_group_whatever_its_partition():
    groups = KeyGroups(Partitioner.MURMUR2, partitions=4, groups=3)
    cards = [f"c{n}" for n in range(20)]
    values = [json.dumps({**GOOD, "card_id": card}).encode() for card in cards]
    records = [
        Record("labels", n % 2, n, n, card.encode(), value if n % 5 else b"{")
        for n, (card, value) in enumerate(zip(cards, values, strict=True))
    ]
    records.append(Record("labels", 1, 20, 20, None, values[0]))
    (taken,) = as_records(records)
    result = [(item, g) for g in range(3) for item in labels.decode(taken, Contract.LABEL, groups, g)]
    assert sorted(item.offset for item, _ in result) == list(range(21))
    for item, group in result:
        if isinstance(item, Label):
            card = cards[item.offset]
            assert groups.group_of(card) == group
            assert (item.lo, item.hi, item.arrival) == (*hash_string(card), item.offset)
            assert item.transaction == hash_string("t")[0] & TRANSACTION_MASK
    buried = {item.offset: item.reason for item, _ in result if isinstance(item, DeadLetter)}
    assert buried == {**dict.fromkeys((0, 5, 10, 15), Reason.MALFORMED_JSON), 20: Reason.INVALID_VALUE}

"""A transaction in another partition than its card's becomes a dead letter that names both."""

import json

import pytest
from harness.raw_records import LIMITS, NOW, record, records
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from loadtests.oracle.partitions import partition_of
from streaming_job.contracts import Reason
from streaming_job.decode import transactions
from streaming_job.log.partitioner import KeyGroups, Partitioner

pytestmark = pytest.mark.unit

CARD_IDS = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"]), min_size=1, max_size=64)


def key_groups(partitioner: Partitioner, partitions: int) -> KeyGroups:
    return KeyGroups(partitioner, partitions=partitions, groups=1)


@pytest.mark.parametrize("partitioner", list(Partitioner))
@examples(40, 5_000)
@given(st.data())
def test_exactly_the_records_in_their_cards_partitions_are_accepted(partitioner, data):
    partitions = data.draw(st.integers(1, 6))
    cards = data.draw(st.lists(CARD_IDS, max_size=30))
    result = sorted(data.draw(st.integers(0, partitions - 1)) for _ in cards)
    values = [record(card_id=card, transaction_id=f"t-{row}") for row, card in enumerate(cards)]
    for row in range(0, len(cards), 3):  # non-ASCII characters become escapes: `decode.strict` reads them
        values[row] = json.dumps(json.loads(values[row])).encode()
    fetched = records(values, partitions=result)
    decoded = transactions.decode(fetched, LIMITS, key_groups(partitioner, partitions))
    right = [partition_of(card, partitions, partitioner) for card in cards]
    assert decoded.rows.tolist() == [row for row in range(len(cards)) if result[row] == right[row]]
    assert decoded.records["partition"].tolist() == [result[row] for row in decoded.rows]
    assert decoded.records["offset"].tolist() == decoded.rows.tolist()
    quoted = [transactions.split_quote(quote)[:2] for quote in decoded.quotes.to_pylist()]
    assert quoted == [[cards[row], f"t-{row}"] for row in decoded.rows]
    assert [(refused.row, refused.reason) for refused in decoded.rejections] == [
        (row, Reason.WRONG_PARTITION) for row in range(len(cards)) if result[row] != right[row]
    ]


def test_the_detail_names_both_partitions_and_no_card():
    right = partition_of("c-1", 12, "crc32")
    result = (right + 1) % 12
    decoded = transactions.decode(
        records([record()], partitions=[result]), LIMITS, key_groups(Partitioner.CRC32, 12)
    )
    (refused,) = decoded.rejections
    assert f"in partition {result}, " in refused.detail
    assert f"is {right};" in refused.detail
    assert "crc32 of 12 partitions" in refused.detail
    assert "c-1" not in refused.detail
    assert len(refused.detail) <= 200


def test_each_record_has_one_reason_and_the_partition_comes_last():
    groups = key_groups(Partitioner.MURMUR2, 2)
    wrong = 1 - partition_of("c-1", 2, "murmur2")
    values = [record(), record(event_time=0), record(amount=-1), b"{", record(event_time=NOW * 2)]
    decoded = transactions.decode(records(values, partitions=[wrong] * 5), LIMITS, groups)
    assert {refused.row: refused.reason for refused in decoded.rejections} == {
        0: Reason.WRONG_PARTITION,
        1: Reason.TOO_LATE,
        2: Reason.NEGATIVE_AMOUNT,
        3: Reason.MALFORMED_JSON,
        4: Reason.FUTURE_EVENT_TIME,
    }
    assert not decoded.rows.size

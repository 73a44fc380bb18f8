"""Q and the last commit of a key group, from committed offsets and progress record, agreeing or not."""

from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from streaming_job.transaction.written import GroupOutput, Mark, OtherQueryError, combined

pytestmark = pytest.mark.unit

OWN = [("transactions", 0), ("transactions", 2)]
MARK = Mark("q", "a/1", 17)


def committed(first: int, second: int, metadata: str | None = None) -> list[TopicPartition]:
    metadata_text = MARK.to_metadata() if metadata is None else metadata
    return [
        TopicPartition(*partition, offset, metadata_text)
        for partition, offset in zip(OWN, (first, second), strict=True)
    ]


def progress(end: int, commit_id: int = 17) -> dict[str, Any]:
    """A progress record, which also has the offsets of a table."""
    partitions = [*OWN, ("profiles", 0)]
    parts = [{"topic": topic, "partition": part, "end_offset": end} for topic, part in partitions]
    return {"query_id": "q", "commit_id": commit_id, "partitions": parts}


def positions(first: int, second: int) -> dict[tuple[str, int], int]:
    return dict(zip(OWN, (first, second), strict=True))


def test_a_new_group_has_no_output() -> None:
    assert combined(committed(OFFSET_INVALID, OFFSET_INVALID, ""), None, OWN) == (GroupOutput(), [])


def test_offsets_and_progress_agree() -> None:
    record = progress(50)
    written = GroupOutput(positions(50, 50), 17, "a/1", "q", record)
    assert combined(committed(50, 50), record, OWN) == (written, [])
    assert written.instance == "a"


def test_claim_before_the_first_progress_is_no_difference() -> None:
    written, differences = combined(committed(3, 4), None, OWN)
    assert (written.offsets, written.owner, differences) == (positions(3, 4), "a/1", [])


def test_greater_position_counts_and_the_difference_is_named() -> None:
    written, differences = combined(committed(40, 60), progress(50, 18), OWN)
    assert (written.offsets, written.commit_id) == (positions(50, 60), 18)
    assert differences == ["transactions-0: 40, last progress record: 50"]


def test_deleted_offsets_are_replaced_by_those_of_the_progress() -> None:
    written, differences = combined(committed(OFFSET_INVALID, OFFSET_INVALID, ""), progress(50), OWN)
    assert written == GroupOutput(positions(50, 50), 17, None, "q", progress(50))
    assert differences[0] == "transactions-0: none, last progress record: 50"


@pytest.mark.parametrize(
    ("second", "metadata", "last_record", "unknown"),
    [
        (OFFSET_INVALID, "", None, True),  # a tool has deleted the offset, and progress is lost
        (1000, "kcat", None, True),  # a tool has moved the offset, and progress is lost
        (OFFSET_INVALID, "", progress(50, 16), True),  # progress has lost its newest record
        (30, Mark("q", "a/1", 16).to_metadata(), progress(50, 16), True),
        (OFFSET_INVALID, "", progress(50, 17), False),
        (50, MARK.to_metadata(), None, False),
        (50, MARK.to_metadata(), progress(50, 16), False),
    ],
)
def test_a_partition_without_a_record_of_the_last_transaction_is_unknown(
    second: int, metadata: str, last_record: dict[str, Any] | None, unknown: bool
) -> None:
    parts = [committed(50, 50)[0], TopicPartition(*OWN[1], second, metadata)]
    written, _ = combined(parts, last_record, OWN)
    assert written.commit_id == 17
    assert written.unknown == (frozenset({OWN[1]}) if unknown else frozenset())


@pytest.mark.parametrize("metadata", ["", "kcat", "[]", "null", '{"query": "q"}', '{"commit": "x"}'])
@pytest.mark.parametrize("offset", [5, 1000])
def test_foreign_offsets_never_count(offset: int, metadata: str) -> None:
    written, differences = combined(committed(offset, offset, metadata), progress(50), OWN)
    assert (written.offsets, written.commit_id, written.owner) == (positions(50, 50), 17, None)
    assert differences[0] == (
        f"transactions-0: {offset}, which this job did not commit, last progress record: 50"
    )
    assert combined(committed(offset, offset, metadata), None, OWN)[0] == GroupOutput()


def test_the_metadata_of_an_offset_is_read_back() -> None:
    assert Mark.from_metadata(MARK.to_metadata()) == MARK


def test_output_of_another_query_is_refused() -> None:
    GroupOutput().require_query("q")
    GroupOutput(query_id="q").require_query("q")
    with pytest.raises(OtherQueryError, match=r"restore the former's checkpoint.* set FRAUD_PREDECESSOR=q"):
        GroupOutput(query_id="q").require_query("other")


def test_output_that_is_being_taken_over_is_refused() -> None:
    with pytest.raises(OtherQueryError, match=r"query s has begun .* set FRAUD_PREDECESSOR=s"):
        GroupOutput(query_id="q", successor="s").require_query("q")

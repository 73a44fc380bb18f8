"""A level is a state that the predecessor had: its tables, and what was decided with no more of them."""

from typing import Any

import pytest

from streaming_job.takeover.level import Level, behind

pytestmark = pytest.mark.unit

TX = "tx"
GROUPS = 2


def record(group: int, number: int, tx: int, table: int, **fields: Any) -> dict[str, Any]:
    """A progress record of one of two groups: its number, its ends in its own partition and in the table."""
    ends = ((TX, group, tx), ("table", 0, table))
    parts = [{"topic": topic, "partition": part, "end_offset": end} for topic, part, end in ends]
    return {
        "key_group": group, "key_groups": GROUPS, "commit_id": number, "partitions": parts,
        "rollouts_set_aside": {}, **fields,
    }  # fmt: skip


def level(*records: dict[str, Any]) -> Level:
    result = Level(TX, "rollouts")
    for each in records:
        result.add(each)
    return result


def test_a_retired_topic_is_no_table_and_is_as_far_as_group_0_reports_it():
    watched = Level(TX, "rollouts", ("old", "older"))
    for group in range(GROUPS):
        watched.add(record(group, 1, 10, 5))
    first = record(0, 2, 20, 5)
    first["partitions"] += [{"topic": t, "partition": 0, "end_offset": 3} for t in ("old", "older")]
    watched.add(first)
    assert watched.offsets() == {
        (TX, 0): 20, (TX, 1): 10, ("table", 0): 5, ("old", 0): 3, ("older", 0): 3,
    }  # fmt: skip


def test_without_a_record_of_each_group_there_is_no_level():
    assert level(record(0, 1, 10, 5)).offsets() == {}


def test_the_table_is_as_far_as_the_slowest_group_and_no_transaction_needs_more_of_it():
    watched = level(record(0, 1, 10, 5), record(0, 2, 20, 5), record(0, 3, 30, 8), record(1, 1, 7, 6))
    # with the table at 6, group 0 had decided up to 20: at 30 it had read the table further
    assert watched.offsets() == {("table", 0): 6, (TX, 0): 20, (TX, 1): 7}
    watched.add(record(1, 2, 9, 8))
    assert watched.offsets() == {("table", 0): 8, (TX, 0): 30, (TX, 1): 9}


def test_a_group_without_a_fitting_record_keeps_its_offsets():
    watched = level(record(0, 1, 10, 9), record(1, 1, 7, 6))
    assert watched.offsets() == {("table", 0): 6, (TX, 1): 7}


def test_a_new_partition_of_a_table_counts_once_every_group_has_reported_it():
    ahead = record(1, 2, 9, 5)
    ahead["partitions"].append({"topic": "table", "partition": 1, "end_offset": 4})
    watched = level(record(0, 1, 10, 5), record(1, 1, 7, 5), ahead)
    # what group 1 has decided since may depend on a record that no group follows yet, if the level is here
    assert watched.offsets() == {("table", 0): 5, (TX, 0): 10, (TX, 1): 7}
    both = record(0, 2, 12, 5)
    both["partitions"].append({"topic": "table", "partition": 1, "end_offset": 6})
    watched.add(both)
    assert watched.offsets() == {("table", 0): 5, ("table", 1): 4, (TX, 0): 10, (TX, 1): 9}


def test_after_a_takeover_transactions_need_the_table_as_far_as_any_group_before_had_read_it():
    before = [{"home": 0, "offsets": [{"topic": "table", "partition": 0, "offset": 8}]}]
    watched = level(record(0, 1, 10, 5, silent_before=before), record(1, 1, 7, 6))
    assert watched.offsets() == {("table", 0): 5}
    watched.add(record(0, 2, 12, 8))
    watched.add(record(1, 2, 7, 8))
    assert watched.offsets() == {("table", 0): 8, (TX, 0): 12, (TX, 1): 7}


def test_a_repeated_or_older_record_changes_nothing():
    watched = level(record(0, 2, 20, 5), record(1, 1, 7, 5))
    watched.add(record(0, 1, 10, 5))
    assert watched.offsets()[TX, 0] == 20


def test_proposals_that_the_predecessor_has_set_aside_are_those_of_its_group_0():
    first = record(0, 1, 1, 1, rollouts_set_aside={"4": "model_refused"})
    # the offset is one of another topic than the successor's
    assert level(first, record(1, 1, 1, 1)).set_aside == {}
    first["partitions"].append({"topic": "rollouts", "partition": 0, "end_offset": 5})
    assert level(first, record(1, 1, 1, 1)).set_aside == {4: "model_refused"}


def test_how_far_positions_are_behind_a_level():
    assert behind({("a", 0): 5, ("a", 1): 7}, {("a", 0): 9, ("a", 1): 4}) == 3
    assert behind({("a", 0): 5}, {}) == 5

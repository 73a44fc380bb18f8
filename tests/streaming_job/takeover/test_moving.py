"""The steps of a move: which are done follows from the job's progress and the topics."""

from typing import Any

import pytest
from harness.progress_records import progress

from streaming_job.log.partitioner import Partitioner
from streaming_job.runtime.preconditions import StartUpError
from streaming_job.takeover.moving import Stage, drained_up_to, stages

pytestmark = pytest.mark.unit

OLD, NEW = "transactions", "transactions-2"
LAYOUT = {"topic": OLD, "partitioner": "murmur2", "partitions": 2}
ELSEWHERE = {"topic": NEW, "partitioner": "crc32", "partitions": 6}
TAKEOVER = {
    "query_id": "q0", "release": "0.1.0+0123abcd", "key_groups": 2, "commit_id": 1, "at": 1,
    "asked_by": "me", "drained": {"layout": LAYOUT, "ends": [100, 100]}, "left": [OLD],
}  # fmt: skip


def records(layout: dict[str, Any] = LAYOUT, **changes: Any) -> dict[int, dict[str, Any]]:
    """The records of two groups, each at offset 100 of its partition and of the profiles."""
    return {group: progress(1, group, 2, layout=layout, **changes) for group in range(2)}


def shown(steps: list[Stage]) -> list[bool]:
    return [step.is_done for step in steps]


def test_to_another_topic_the_steps_are_done_one_after_another() -> None:
    ends: dict[str, list[int] | None] = {OLD: [100, 103], NEW: None}
    steps = stages(records(), NEW, Partitioner.CRC32, ends)
    assert shown(steps) == [False] * 4
    assert f"FRAUD_TOPICS__TRANSACTIONS={NEW} fraud job topics" in steps[0].text
    assert "3 records of transactions are not decided" in steps[2].text
    for part in ("FRAUD_PREDECESSOR=q1", "FRAUD_PARTITIONER=crc32", f"FRAUD_RETIRED_TRANSACTIONS={OLD}"):
        assert part in steps[3].text
    ends |= {NEW: [0] * 6}
    assert shown(stages(records(), NEW, Partitioner.CRC32, ends)) == [True, False, False, False]
    ends |= {OLD: [100, 100], NEW: [7] * 6}
    assert shown(stages(records(), NEW, Partitioner.CRC32, ends)) == [True, True, True, False]


def test_no_producer_is_stopped_for_a_move_that_a_job_with_merchant_facts_cannot_make() -> None:
    ends: dict[str, list[int] | None] = {OLD: [100, 103], NEW: None}
    with pytest.raises(StartUpError, match="first turn these off"):
        stages(records(label_delay_ms=5), NEW, Partitioner.CRC32, ends)


def test_groups_that_have_read_a_table_unequally_far_are_not_drained() -> None:
    unequal = records()
    unequal[1]["partitions"][1]["end_offset"] = 101
    assert drained_up_to(unequal, [100, 100]) == "its key groups have read profiles up to different positions"
    assert drained_up_to(records(), [100, 100, 5]) == "", "an added partition is not the job's"
    new_to_one = records()
    new_to_one[1]["partitions"].append({**new_to_one[1]["partitions"][1], "partition": 1})
    assert drained_up_to(new_to_one, [100, 100]).startswith("its key groups have read profiles up to differ")


def test_after_the_move_the_old_topic_is_watched_and_then_forgotten() -> None:
    moved = records(ELSEWHERE, takeover=TAKEOVER)
    moved[0]["totals"]["dead_letters_by_reason"]["retired_topic"] = 4
    steps = stages(moved, NEW, Partitioner.CRC32, {NEW: [0] * 6})
    assert shown(steps) == [True, False, False]
    assert steps[0].text == "the job decides transactions-2 (6 partitions by crc32)"
    assert steps[1].text.endswith("came too late so far: 4")
    for record in moved.values():
        del record["partitions"][0]
    assert all(shown(stages(moved, NEW, Partitioner.CRC32, {NEW: [0] * 6})))
    # no successor may begin there
    back = stages(moved, OLD, Partitioner.MURMUR2, {OLD: [100, 100], NEW: [0] * 6})
    assert not back[0].is_done
    assert back[0].text.startswith("choose another name: the transactions have left transactions")


def test_a_second_move_goes_on_refusing_what_comes_to_the_first_topic() -> None:
    moved = records(ELSEWHERE, takeover={**TAKEOVER, "left": ["older", OLD]})
    ends = {NEW: [0] * 6, "third": [0] * 6}
    assert (
        f"FRAUD_RETIRED_TRANSACTIONS={OLD},{NEW} " in stages(moved, "third", Partitioner.CRC32, ends)[3].text
    )
    # so do more partitions
    steps = stages(moved, NEW, Partitioner.CRC32, {NEW: [0] * 9})
    assert f"FRAUD_RETIRED_TRANSACTIONS={OLD} " in steps[3].text


def test_to_partitions_that_the_topic_has_got() -> None:
    steps = stages(records(), OLD, Partitioner.MURMUR2, {OLD: [100, 100, 0]})
    assert shown(steps) == [True, True, True, False, False]
    assert "FRAUD_RETIRED_TRANSACTIONS" not in steps[3].text
    assert shown(stages(records(), OLD, Partitioner.MURMUR2, {OLD: [100, 100]})) == [True]

"""The first records of a successor: positions, totals and trials of the predecessor, by the new groups."""

from typing import Any

import orjson
import pytest

from feature_store.catalogue import IDENTITIES
from loadtests.audit.commits import is_seam
from streaming_job.contracts import Contract, validate
from streaming_job.log.partitioner import Layout, Partitioner
from streaming_job.log.records import Offsets
from streaming_job.progress import last_record
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.writer import GroupProgress
from streaming_job.takeover.seam import Predecessor, Successor, first_records

pytestmark = pytest.mark.unit

TX, TABLE, ROLLOUTS = "tx", "table", "rollouts"
PARTITIONS = 6
LAYOUT = Layout(TX, Partitioner.MURMUR2, PARTITIONS)


def record(group: int, groups: int, table_end: int, transactions: int, **last: Any) -> dict[str, Any]:
    """The last progress record of a group, after one commit of some transactions."""
    ends: Offsets = {(TX, home): 100 + home for home in range(group, PARTITIONS, groups)}
    ends[TABLE, 0] = table_end
    outcome = Outcome()
    outcome.counts["transactions"] = transactions
    progress = GroupProgress("job", "old", group, groups, last or None, 40 + group, IDENTITIES)
    encoded = progress.record(
        outcome, epoch=3, started_at=1_000, now=2_000, starts=ends, ends=ends, transactions_topic=TX,
        table_lag={},
    )  # fmt: skip
    decoded: dict[str, Any] = orjson.loads(encoded)
    return decoded


def seam(
    records: dict[int, dict[str, Any]],
    groups: int,
    layout: Layout = LAYOUT,
    retired: tuple[str, ...] = (),
    former: Layout = LAYOUT,
) -> list[dict[str, Any]]:
    """The successor's first records."""
    ends = {(former.topic, home): 100 + home for home in range(former.partitions)}
    before = Predecessor(records, ends, 47, former)
    after = Successor(
        "job", "new", layout.key_groups(groups), layout, (TABLE, ROLLOUTS), (ROLLOUTS,), IDENTITIES, retired
    )
    encoded = first_records(before, after, "sre", 9_000)
    return [orjson.loads(record) for _, record in sorted(encoded.items())]


def test_each_new_group_has_the_positions_of_its_partitions_under_the_next_number():
    old = {group: record(group, 2, 50 + group, 7) for group in range(2)}
    new = seam(old, 3)
    for group, first in enumerate(new):
        validate(Contract.JOB_PROGRESS, first)
        assert (first["query_id"], first["key_group"], first["key_groups"]) == ("new", group, 3)
        assert first["commit_id"] == 48
        assert first.get("rollout_topics") == (None if group else [ROLLOUTS])
        assert first["takeover"] == {
            "query_id": "old", "release": old[0]["release"], "key_groups": 2,
            "commit_id": 48, "at": 9_000, "asked_by": "sre", "moved": False,
        }  # fmt: skip
        ends = last_record.positions(first)
        assert {tp: end for tp, end in ends.items() if tp[0] == TX} == {
            (TX, home): 100 + home for home in (group, group + 3)
        }
        # homes of one new group were in both old ones, which had read the table to 50 and to 51
        assert ends[TABLE, 0] == 50
        assert last_record.by_home(first) == {
            home: {(TABLE, 0): 50 + home % 2} for home in (group, group + 3)
        }


def test_groups_of_equal_positions_need_no_more_than_these():
    assert all("silent_before" not in first for first in seam({g: record(g, 2, 50, 7) for g in range(2)}, 3))


def test_of_another_rollout_topic_nothing_is_continued():
    ends: Offsets = {(topic, 0): 5 for topic in ("rollouts of another", ROLLOUTS)}
    for topic, is_same in (("rollouts of another", False), (ROLLOUTS, True)):
        old = {0: record(0, 1, 50, 7)}
        old[0] |= {"rollouts_set_aside": {"4": "model_refused"}, "rollout_id": "r1"}
        old[0]["partitions"] += [{**old[0]["partitions"][0], "topic": topic, "end_offset": ends[topic, 0]}]
        (first,) = seam(old, 1)
        validate(Contract.JOB_PROGRESS, first)
        assert (first["rollouts_set_aside"], first["rollout_id"]) == (
            ({"4": "model_refused"}, "r1") if is_same else ({}, None)
        )
        assert ((topic, 0) in last_record.positions(first)) == is_same


def test_in_another_topic_the_cards_begin_anew_and_group_0_refuses_what_still_comes_to_the_old_one():
    elsewhere = Layout("elsewhere", Partitioner.CRC32, 8)
    old = {group: record(group, 2, 50, 7) for group in range(2)}
    for each in old.values():  # drained
        each["partitions"][0]["end_offset"] = 50
    new = seam(old, 3, elsewhere, retired=(TX,))
    for group, first in enumerate(new):
        validate(Contract.JOB_PROGRESS, first)
        ends = last_record.positions(first)
        assert {tp: end for tp, end in ends.items() if tp[0] == "elsewhere"} == {
            ("elsewhere", home): 0 for home in range(group, 8, 3)
        }
        assert ends[TABLE, 0] == 50
        left = {(TX, home): 100 + home for home in range(PARTITIONS)}
        assert {tp: end for tp, end in ends.items() if tp[0] == TX} == ({} if group else left)
        assert first["takeover"]["drained"] == {
            "layout": LAYOUT.to_json(), "ends": [100 + home for home in range(PARTITIONS)],
        }  # fmt: skip
        assert first["applied"] == []
    assert new[0]["layout"] == elsewhere.to_json()
    # after a takeover within the new topic group 0 still refuses them
    third = seam(dict(enumerate(new)), 2, elsewhere, (TX,), elsewhere)
    assert last_record.positions(third[0])[TX, 3] == 103
    assert "drained" not in third[0]["takeover"]
    assert third[0]["takeover"]["moved"]
    assert last_record.left(third[0]) == [TX]


def test_after_a_second_move_group_0_refuses_what_comes_to_either_topic_until_told_to_forget_it():
    second, third = Layout("second", Partitioner.CRC32, 3), Layout("third", Partitioner.CRC32, 4)
    moved = dict(enumerate(seam({0: record(0, 1, 50, 7)}, 2, second, (TX,))))
    again = seam(moved, 2, third, (TX, "second"), second)
    former = {(topic, home): 100 + home for topic, count in ((TX, 6), ("second", 3)) for home in range(count)}
    for group, first in enumerate(again):
        validate(Contract.JOB_PROGRESS, first)
        ends = last_record.positions(first).items()
        assert {tp: end for tp, end in ends if tp[0] in (TX, "second")} == ({} if group else former)
    (forgotten,) = seam(dict(enumerate(again)), 1, third, ("second",), third)
    assert {topic for topic, _ in last_record.positions(forgotten)} == {"second", "third", TABLE}
    assert last_record.left(forgotten) == [TX, "second"], "the cards must never move back"


def test_in_more_partitions_of_the_topic_the_cards_continue_where_it_ended():
    (first,) = seam({0: record(0, 1, 50, 7)}, 1, Layout(TX, Partitioner.MURMUR2, PARTITIONS + 2))
    ends = last_record.positions(first)
    assert [ends[TX, home] for home in range(PARTITIONS + 2)] == [100, 101, 102, 103, 104, 105, 0, 0]


def test_totals_go_on():
    old = {group: record(group, 3, 50, 10**group) for group in range(3)}
    new = seam(old, 2)
    assert [first["totals"]["counts"]["transactions"] for first in new] == [1 + 100, 10]
    assert [first["counts"]["transactions"] for first in new] == [0, 0]
    assert {first["totals"]["since"] for first in new} == {1_000}


def test_of_two_takeovers_in_a_row_each_home_keeps_its_own_position():
    first = {group: record(group, 3, 50 + group, 1) for group in range(3)}
    second = dict(enumerate(seam(first, 2)))
    for third in seam(second, 1), seam(second, 3):
        for each in third:
            ends, homes = last_record.positions(each), last_record.by_home(each)
            for home in range(each["key_group"], PARTITIONS, each["key_groups"]):
                assert max(ends[TABLE, 0], homes.get(home, {}).get((TABLE, 0), 0)) == 50 + home % 3


def test_the_positions_by_home_are_repeated_until_the_group_has_passed_them():
    (first,) = seam({group: record(group, 2, 50 + group, 7) for group in range(2)}, 1)
    progress = GroupProgress("job", "new", 0, 1, first, computed=IDENTITIES)
    ends = last_record.positions(first)
    for table_end, is_kept in ((50, True), (51, False), (51, False)):
        ends = {**ends, (TABLE, 0): table_end}
        encoded = progress.record(
            Outcome(), epoch=0, started_at=0, now=0, starts=ends, ends=ends, transactions_topic=TX,
            table_lag={},
        )  # fmt: skip
        decoded = orjson.loads(encoded)
        assert ("silent_before" in decoded) == is_kept
        assert decoded["takeover"] == first["takeover"]
        assert not is_seam(decoded)
    assert is_seam(first)


def test_a_start_without_a_table_that_the_seam_names_passes_the_others():
    (first,) = seam({group: record(group, 2, 50 + group, 7) for group in range(2)}, 1)
    progress = GroupProgress("job", "new", 0, 1, first, computed=IDENTITIES)
    ends: Offsets = {tp: end for tp, end in last_record.positions(first).items() if tp[0] == TX}
    encoded = progress.record(
        Outcome(), epoch=0, started_at=0, now=0, starts=ends, ends=ends, transactions_topic=TX, table_lag={}
    )
    assert "silent_before" not in orjson.loads(encoded)


def test_a_tables_new_partition_may_be_known_to_some_of_the_groups_only():
    old = {group: record(group, 2, 50, 7) for group in range(2)}
    old[0]["partitions"].append({**old[0]["partitions"][0], "topic": TABLE, "partition": 1, "end_offset": 3})
    (first,) = seam(old, 1)
    assert last_record.positions(first)[TABLE, 1] == 0
    # the cards of group 0 have been reported up to there
    assert {home: at.get((TABLE, 1), 0) for home, at in last_record.by_home(first).items()} == {
        home: 0 if home % 2 else 3 for home in range(PARTITIONS)
    }

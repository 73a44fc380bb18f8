"""The profile version that a transaction sees, by the order of the log and by arrival."""

import numpy as np
import pytest
from harness.log_world import DAY, HOUR, MINUTE, START
from histories import History, Pieces, assert_same, judge, one_batch, persist, rebuilt, replay

from feature_store.catalogue import COLUMN
from feature_store.layout import PROFILES
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import Meta

pytestmark = pytest.mark.unit


def tiers(history: History) -> list[float | None]:
    """Risk tier that each transaction sees, or None; checks that the oracle and other batches agree."""
    whole = replay(history)
    assert_same(whole, replay(history, range(len(history.transactions)), lambda batch: batch % 2 == 0))
    seen = whole.features[:, COLUMN["risk_tier"]]
    np.testing.assert_array_equal(seen, judge(history).features[:, COLUMN["risk_tier"]])
    np.testing.assert_array_equal(whole.features[:, COLUMN["has_profile"]], ~np.isnan(seen))
    return [None if np.isnan(tier) else tier for tier in seen.tolist()]


def arriving(history: History, *arrivals: int) -> History:
    for arrival in arrivals:
        history.tx(0, arrival=arrival)
    return history


def test_version_is_visible_from_its_arrival_on():
    """profile       1 at 10        2 at 20
    tx        9      10    19       20     21
    """
    history = History()
    history.profile("c", 10, risk_tier=1)
    history.profile("u", 20, risk_tier=2)
    assert tiers(arriving(history, 9, 10, 19, 20, 21)) == [None, 1, 1, 2, 2]


def test_late_event_sees_the_profile_of_its_arrival():
    """A transaction that is dated before the change and arrives after it sees the change."""
    history = History()
    history.profile("c", 0, risk_tier=1)
    history.profile("u", HOUR, risk_tier=2)
    history.tx(HOUR // 2, arrival=2 * HOUR)
    assert tiers(history) == [2]


def test_snapshot_row_counts_as_known_from_the_beginning():
    """profile              r at 50
    tx        0      49     50
    """
    history = History()
    history.profile("r", 50, risk_tier=3)
    whole = replay(arriving(history, 0, 49, 50), read_ahead=HOUR)  # the job loads the tables first
    for outcomes in (whole, judge(history)):
        assert outcomes.features[:, COLUMN["risk_tier"]].tolist() == [3, 3, 3]


@pytest.mark.parametrize("op", ["c", "u", "d", "tombstone"])
def test_snapshot_row_never_replaces_a_version(op):
    """profile   op at 10       r at 20 (an older copy of the row)
    tx              10, 15      20, 25
    """
    history = History()
    history.profile(op, 10, risk_tier=1)
    history.profile("r", 20, risk_tier=3)
    seen = 1 if op in "cu" else None
    assert tiers(arriving(history, 10, 15, 20, 25)) == [seen] * 4


def test_second_snapshot_of_unknown_age_does_not_replace_the_first():
    history = History()
    history.profile("r", 0, risk_tier=1)
    history.profile("r", 10, risk_tier=2)
    assert tiers(arriving(history, 5, 10, 20)) == [1, 1, 1]


def incremental(lsn: int | None) -> dict[str, object]:
    """The source of a row that Debezium read again."""
    return {"snapshot": "incremental", "lsn": lsn}


@pytest.mark.parametrize("op", ["r", "c", "u", "d"])
@pytest.mark.parametrize(
    ("before", "after", "replaced"),
    [
        (255, 256, True), (1 << 48, (1 << 48) + 1, True), (256, 255, False), (7, 7, False),
        (7, None, False), (None, 7, False), (7, "8", False), (7, True, False), (7, 1 << 63, False),
    ],
)  # fmt: skip
def test_a_row_read_again_replaces_only_versions_with_an_older_lsn(op, before, after, replaced):
    """profile   op at 0     row read again at 10
    tx               5       10     15

    Of two snapshot rows with the same LSN, the later one counts: it may be a corrected one.
    """
    replaced = replaced or (op == "r" and before == after)
    history = History()
    history.profile(op, 0, risk_tier=1, source={"lsn": before})
    history.profile("r", 10, risk_tier=2, source=incremental(after))  # type: ignore[arg-type]
    old = None if op == "d" else 1
    assert tiers(arriving(history, 5, 10, 15)) == [old, *([2, 2] if replaced else [old, old])]


def test_tombstone_does_not_hide_when_the_card_was_deleted():
    history = History()
    history.profile("d", 0, source={"lsn": 5})
    history.profile("tombstone", 0)
    history.profile("r", 10, risk_tier=2, source=incremental(6))
    assert tiers(arriving(history, 5, 15)) == [None, 2]


def at(lsn: int | None, committed: int | None = None) -> dict[str, object]:
    """A change's source; `committed` in ms from START."""
    return {"lsn": lsn, "ts_ms": None if committed is None else START + committed}


def test_changes_that_debezium_or_a_replay_sends_again_change_nothing():
    """Block at LSN 20; then the log has the changes of LSN 10 (active) and 20 (blocked) once more."""
    history = History()
    history.profile("c", 0, status="active", risk_tier=1, source=at(10))
    history.profile("u", 10, status="blocked", risk_tier=2, source=at(20))
    history.profile("u", 20, status="active", risk_tier=1, source=at(10))
    history.profile("u", 30, status="blocked", risk_tier=2, source=at(20))
    assert tiers(arriving(history, 5, 15, 25, 35)) == [1, 2, 2, 2]
    assert replay(history).standing == ["active", *["blocked"] * 3]


@pytest.mark.parametrize("lsn", [None, 25])
def test_a_deleted_row_does_not_come_back_with_an_older_change(lsn):
    """The tombstone has no LSN; it stays as new as the row that it deletes."""
    history = History()
    history.profile("u", 0, status="blocked", risk_tier=2, source=at(20, 0))
    if lsn:
        history.profile("d", 10, source=at(lsn, 10))
    history.profile("tombstone", 10)
    history.profile("u", 20, status="active", risk_tier=1, source=at(10, -HOUR))
    assert tiers(arriving(history, 5, 25)) == [2, None]
    assert replay(history).standing == ["blocked", "blocked"]


@pytest.mark.parametrize("op", ["r", "u"])
@pytest.mark.parametrize(
    ("lsn", "committed", "wins"),
    [
        (30, 2 * HOUR, True),  # of another database: a lower LSN, but younger
        (30, HOUR + 5 * MINUTE + 1, True),
        (30, HOUR + 5 * MINUTE, False),  # the clocks may differ by as much
        (30, 0, False),
        (90, HOUR - DAY, True),  # it may be a change after a row that a long snapshot has read late
        (90, HOUR - DAY - 1, False),  # of another database: a greater LSN, but older
        (90, 2 * HOUR, True),
        (90, None, True),
        (None, 2 * HOUR, True),
        (None, HOUR - 5 * MINUTE - 1, False),
    ],
)
def test_times_decide_where_lsns_are_of_two_databases(op, lsn, committed, wins):
    """profile   LSN 50, committed after an hour      op with another LSN and time, two hours later"""
    history = History()
    history.profile("u", 2 * HOUR, risk_tier=1, source=at(50, HOUR))
    history.profile(op, 4 * HOUR, risk_tier=2, source=at(lsn, committed))
    assert tiers(arriving(history, 3 * HOUR, 5 * HOUR)) == [1, 2 if wins else 1]


def test_after_a_snapshot_of_another_database_its_lsns_count():
    history = History()
    history.profile("u", 0, risk_tier=1, source=at(5_000, 0))
    history.profile("r", HOUR, risk_tier=2, source=at(30, HOUR))
    history.profile("u", HOUR, risk_tier=3, source=at(40, HOUR + 1))
    history.profile("u", HOUR, risk_tier=0, source=at(35, HOUR + 1))
    assert tiers(arriving(history, 5, 2 * HOUR)) == [1, 3]


def test_a_clock_that_was_ahead_does_not_make_later_changes_old():
    history = History()
    history.profile("u", 0, risk_tier=1, source=at(10, 900 * DAY))
    history.profile("u", HOUR, risk_tier=2, source=at(20, HOUR))
    assert tiers(arriving(history, 5, 2 * HOUR)) == [1, 2]


@pytest.mark.parametrize("ts_ms", ["1", True, -5, 1 << 63, 1.5])
def test_a_time_that_is_none_is_unknown(ts_ms):
    history = History()
    history.profile("u", 0, risk_tier=1, source=at(10, 0))
    history.profile("u", HOUR, risk_tier=2, source={"lsn": 20, "ts_ms": ts_ms})
    assert tiers(arriving(history, 5, 2 * HOUR)) == [1, 2]


def test_ignored_changes_are_counted():
    state, history = GroupState(MemoryArena()), History()
    for lsn in (20, 10, 20, 15, 30):
        history.profile("u", 0, source=at(lsn))
    history.profile("d", 0, source=at(5))
    changes = history.change_records()
    assert state.change_profiles(changes, state.card_numbers(changes)) == (0, 3)


def test_a_row_read_again_of_an_unknown_card_is_visible_from_its_arrival():
    history = History()
    history.profile("r", 10, risk_tier=2, source=incremental(1))
    assert tiers(arriving(history, 5, 10)) == [None, 2]


@pytest.mark.parametrize("ops", [("d",), ("tombstone",), ("d", "tombstone")], ids=" ".join)
def test_deleted_card_has_no_profile_until_it_comes_back(ops):
    """profile   1 at 0     deleted at 10     2 at 20
    tx               9      10         19     20
    """
    history = History()
    history.profile("c", 0, risk_tier=1)
    for op in ops:
        history.profile(op, 10)
    history.profile("c", 20, risk_tier=2)
    assert tiers(arriving(history, 9, 10, 19, 20)) == [1, None, None, 2]


@pytest.mark.parametrize("status", ["blocked", "closed"])
@pytest.mark.parametrize("ops", [("d",), ("tombstone",), ("d", "tombstone"), ("d", "d")], ids=" ".join)
def test_deleted_row_keeps_the_status_that_it_had(ops, status):
    """profile   active at 0   blocked at 10   deleted at 20   active at 30
    tx                    9              10, 19           20, 29          30
    """
    history = History()
    history.profile("c", 0)
    history.profile("u", 10, status=status)
    for op in ops:
        history.profile(op, 20, status="active")  # the row in a delete does not matter
    history.profile("c", 30)
    whole = replay(arriving(history, 9, 10, 19, 20, 29, 30))
    assert whole.standing == ["active", *[status] * 4, "active"]
    assert whole.features[:, COLUMN["has_profile"]].tolist() == [1, 1, 1, 0, 0, 1]
    assert judge(history).standing == whole.standing
    assert_same(whole, replay(history, range(6), lambda batch: batch % 2 == 0))


def test_the_delete_of_an_unknown_row_leaves_an_active_card():
    history = History()
    history.profile("d", 0, status="blocked")
    assert replay(arriving(history, 5)).standing == judge(history).standing == ["active"]


def test_tombstone_of_an_unknown_card_is_harmless():
    history = History()
    history.profile("tombstone", 0)
    history.profile("c", 10, risk_tier=1)
    assert tiers(arriving(history, 5, 15)) == [None, 1]


def test_equal_arrivals_go_by_offset():
    history = History()
    for tier in (1, 2, 3):
        history.profile("u", 10, risk_tier=tier)
    assert tiers(arriving(history, 10)) == [3]


def test_profile_is_of_its_card_only():
    history = History()
    history.profile("c", 0, card="other", risk_tier=1)
    assert tiers(arriving(history, 5)) == [None]


def behind(history: History, op: str, arrival: int) -> int:
    """Read one change after all transactions are decided; return 1 if it is counted as late, else 0."""
    state = GroupState(MemoryArena())
    records = history.records()
    state.apply(records, state.card_numbers(records))
    late = History()
    late.profile(op, arrival)
    changes = late.change_records()
    return state.change_profiles(changes, state.card_numbers(changes))[0]


@pytest.mark.parametrize(
    ("op", "arrival", "count"),
    [("u", 9, 1), ("u", 10, 1), ("u", 11, 0), ("d", 10, 1), ("d", 11, 0), ("r", 9, 1), ("r", 11, 1)],
)
def test_change_behind_a_decided_transaction_is_counted(op, arrival, count):
    """The card's transaction arrived at 10 and was decided before the change was read.

    tx                     10
    change            9    10    11
    should be seen    yes  yes   no     a snapshot row: always, it is known from the beginning
    """
    assert behind(arriving(History(), 10), op, arrival) == count


def test_change_of_a_card_without_transactions_is_never_late():
    assert behind(History(), "u", 0) == 0


def test_invisible_versions_are_freed():
    """A card whose profile changes before each of its thousand transactions keeps two versions."""
    history = History()
    for number in range(1000):
        history.profile("u", 2 * number, risk_tier=number % 4)
        history.tx(0, arrival=2 * number + 1)
    records, changes = history.records(), history.change_records()
    state, store, meta = GroupState(MemoryArena()), Pieces(), Meta()
    for number in range(1000):
        _, delta = one_batch(state, changes[number : number + 1], records[number : number + 1])
        persist(store, meta, state, delta)
    assert state.counters[PROFILES] == 2  # records ever used
    again, _ = rebuilt(store)
    late = History()
    late.tx(0, arrival=5000, transaction_id="later")
    after = late.records()
    tier = again.apply(after, again.card_numbers(after)).features[0, COLUMN["risk_tier"]]
    assert tier == 999 % 4

"""Outcomes of the kernels equal the naive oracle's, and do not depend on the batches."""

import numpy as np
import pytest
from harness.log_world import DAY, HOUR, MINUTE, SECOND, START
from histories import History, assert_close, assert_same, histories, judge, one_batch, replay
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.catalogue import COLUMN
from feature_store.layout import MOST_EVENTS, TRANSACTION_BITS
from feature_store.state import deltas, journal, piece_records
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module", autouse=True)
def _small_pieces():
    """Pieces of two cards, so that three cards make snapshots of different ages."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (piece_records, journal, deltas):
            patch.setattr(module, "CARDS_PER_PIECE", 2)
        yield


@examples(60)
@given(histories())
def test_kernels_equal_the_oracle(history):
    assert_close(replay(history), judge(history))


@examples(60)
@given(histories(), st.lists(st.integers(1, 39), max_size=8), st.sampled_from((0, HOUR, 40 * DAY)))
def test_batches_may_be_cut_anywhere(history, cuts, read_ahead):
    assert_same(replay(history, cuts, read_ahead=read_ahead), replay(history))


@examples(60)
@given(
    histories(),
    st.lists(st.integers(1, 39), max_size=8),
    st.sets(st.integers(0, 8)),
    st.sampled_from((0, 1, journal.SNAPSHOT_BYTES_PER_DELTA_BYTE)),
)
def test_state_may_be_rebuilt_from_its_pieces_at_any_time(history, cuts, when, snapshots):
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # the default alone would give only snapshots for so small a history
        patch.setattr(journal, "SNAPSHOT_BYTES_PER_DELTA_BYTE", snapshots)
        rebuilt = replay(history, cuts, rebuild_after=when.__contains__)
    assert_same(rebuilt, replay(history))


@examples(15, thorough=500)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((0, 1, SECOND, MINUTE, HOUR, DAY)), st.integers(0, DAY), st.integers(0, 10**6)
        ),
        min_size=200,
        max_size=500,
    ),
    st.integers(1, 100),
)
def test_busy_card_equals_the_oracle(steps, batch):
    """Hundreds of events of one card in weeks: its segment grows and moves, and drops old events."""
    history, clock = History(), 0
    for pause, lag, units in steps:
        clock += pause
        history.tx(clock - lag, units, arrival=clock, merchant=f"m{units % 40}")
    expected = judge(history)
    assert_close(replay(history), expected)
    assert_close(replay(history, range(0, len(steps), batch), lambda n: n % 3 == 0), expected)


@pytest.mark.parametrize(
    "change",
    [
        {"units": 100_001},
        {"currency": "EUS"},
        {"merchant_id": "n"},
        {"country": "DE"},
        {"event_time": START + 1},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("others", [0, MOST_EVENTS], ids=["plain", "hot"])
def test_a_reused_id_with_other_content_is_another_transaction(change, others):
    """x, x with one field changed (accepted and marked), then both again (repetitions)."""
    history = History()
    for number in range(others):
        history.tx(-number * SECOND, arrival=0, transaction_id=f"other {number}")
    history.tx(0, transaction_id="x")
    x = history.transactions[-1]
    history.again(x, SECOND, **change)
    history.again(x, 2 * SECOND)
    history.again(x, 3 * SECOND, **change)
    result = replay(history)
    assert result.duplicate[-4:].tolist() == [False, False, True, True]
    assert result.conflicting[-4:].tolist() == [False, True, False, False]
    assert result.features[-3, COLUMN["count_all"]] == others + 1
    assert_same(replay(history, (others + 1, others + 2, others + 3), lambda batch: True), result)
    assert_close(result, judge(history))


@pytest.mark.parametrize("others", [0, MOST_EVENTS], ids=["plain", "hot"])
def test_a_hash_collision_of_ids_suppresses_no_alert(others):
    """An id whose hash has the same low 48 bits, the ones kept, has one effect: a mark in the alert."""
    history = History()
    for number in range(others):
        history.tx(-number * SECOND, arrival=0, transaction_id=f"other {number}")
    history.tx(0, 10_000)
    history.tx(SECOND, 90_000_000)
    records = history.records()
    records["transaction"][-1] = records["transaction"][-2] ^ np.uint64(1 << TRANSACTION_BITS)
    judged, _ = one_batch(GroupState(MemoryArena()), history.change_records(), records)
    assert not judged.duplicate.any()
    assert judged.conflicting.tolist() == [False] * (others + 1) + [True]


def test_false_dates_cannot_hide_a_burst():
    """200 transactions in a second, dated six minutes apart: no two share a 5-minute window of event time."""
    history = History()
    history.tx(-10 * DAY)
    for number in range(200):
        history.tx(-6 * DAY + number * 6 * MINUTE, arrival=5 * number)
    result = replay(history)
    assert result.features[1:, COLUMN["count_5m"]].tolist() == [1] * 200
    assert not result.late.any()
    for window in ("1m", "5m", "1h"):
        assert result.features[1:, COLUMN[f"arrivals_{window}"]].tolist() == list(range(1, 201))
    assert result.features[1, COLUMN["lateness"]] == 6 * 86_400
    assert_same(replay(history, range(0, 200, 7), lambda batch: batch % 3 == 0), result)


def test_arrival_that_goes_back_counts_as_the_one_before_it():
    """A broker's clock goes back: five arrivals are a minute before the first, and count as at its time."""
    history = History()
    history.tx(0, arrival=HOUR)
    for number in range(5):
        history.tx(number, arrival=HOUR - MINUTE)
    result = replay(history)
    assert result.features[:, COLUMN["arrivals_1m"]].tolist() == [1, 2, 3, 4, 5, 6]
    assert_same(replay(history, range(6), lambda batch: True), result)
    np.testing.assert_array_equal(
        result.features[:, COLUMN["arrivals_1m"]], judge(history).features[:, COLUMN["arrivals_1m"]]
    )


def test_duplicate_leaves_no_trace():
    plain, repeated = History(), History()
    for history in (plain, repeated):
        history.tx(0, transaction_id="x")
        if history is repeated:
            history.again(history.transactions[0], SECOND)
        history.tx(2 * SECOND, transaction_id="y")
    kept = replay(repeated).features[[0, 2]]
    assert kept.tobytes() == replay(plain).features.tobytes()


@pytest.mark.parametrize("cuts", [(), (1,)], ids=["one batch", "two batches"])
def test_alerts_before_a_silence_are_forgotten_in_any_batches(cuts):
    """alert ---- 91 days of silence ---- alert: the second counts as the card's first."""
    history = History()
    history.profile("c", 0)
    history.tx(0, 2_000_000)
    history.tx(91 * DAY, 2_000_000)
    assert replay(history, cuts).suspicious == [(1, 1), (1, 1)]


def test_state_of_many_cards_grows_and_keeps_every_one():
    """More cards than the first arrays hold, in batches; each card's third event counts the two before it."""
    history = History()
    for turn in range(3):
        for number in range(3000):
            history.tx(turn * MINUTE, card=f"card{number}", transaction_id=f"t{turn}")
    result = replay(history, (1000, 4500), lambda batch: batch == 1)
    assert (result.features[:, COLUMN["count_all"]] == np.repeat((0, 1, 2), 3000)).all()


def test_arrivals_that_go_back_are_judged_alike_in_any_batches():
    """A broker's clock went back: the third transaction has an earlier arrival than the two accepted before.

    profile  v1 at 0 ------- v2 at 50 s ---------- v3 at 105 s
    tx                                     100 s                110 s   and then 20 s
    The third counts as arrived with the second, because older versions may have been dropped.
    """
    history = History()
    history.profile("c", 0, risk_tier=1)
    history.profile("u", 50 * SECOND, risk_tier=2)
    history.profile("u", 105 * SECOND, risk_tier=3)
    for arrival in (100, 110, 20):
        history.tx(arrival * SECOND, 2_000_000, arrival=arrival * SECOND)
    whole = replay(history)
    assert whole.features[:, COLUMN["risk_tier"]].tolist() == [2, 3, 3]
    assert_same(replay(history, (1, 2)), whole)
    assert_same(replay(history, (1, 2), lambda batch: True), whole)

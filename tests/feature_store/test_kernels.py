"""The kernels against the naive oracle, and against themselves in other batches."""

import numpy as np
import pytest
from histories import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    History,
    assert_close,
    assert_same,
    histories,
    judge,
    replay,
)
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store import deltas, journal, pieces
from feature_store.catalogue import COLUMN

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module", autouse=True)
def _small_pieces():
    """Pieces of two cards, so that three cards make snapshots of different ages."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (pieces, journal, deltas):
            patch.setattr(module, "CARDS_PER_PIECE", 2)
        yield


def column(history: History, name: str) -> list[float]:
    return replay(history).features[:, COLUMN[name]].tolist()


@examples(250)
@given(histories())
def test_kernels_equal_the_oracle(history):
    assert_close(replay(history), judge(history))


@examples(150)
@given(histories(), st.lists(st.integers(1, 39), max_size=8), st.sampled_from((0, HOUR, 40 * DAY)))
def test_batches_may_be_cut_anywhere(history, cuts, read_ahead):
    assert_same(replay(history, cuts, read_ahead=read_ahead), replay(history))


@examples(150)
@given(
    histories(),
    st.lists(st.integers(1, 39), max_size=8),
    st.sets(st.integers(0, 8)),
    st.sampled_from((0, 1, journal.SNAPSHOT_BYTES_PER_DELTA_BYTE)),
)
def test_state_may_be_rebuilt_from_its_pieces_at_any_time(history, cuts, when, snapshots):
    with pytest.MonkeyPatch.context() as patch:  # histories so small would be all snapshots, or all deltas
        patch.setattr(journal, "SNAPSHOT_BYTES_PER_DELTA_BYTE", snapshots)
        rebuilt = replay(history, cuts, rebuild_after=when.__contains__)
    assert_same(rebuilt, replay(history))


@examples(15, thorough=500)
@given(
    st.lists(
        st.tuples(st.sampled_from((0, 1, SECOND, MINUTE, HOUR)), st.integers(0, DAY), st.integers(0, 10**6)),
        min_size=200,
        max_size=500,
    ),
    st.integers(1, 100),
)
def test_busy_card_equals_the_oracle(steps, batch):
    """Hundreds of events of one card: segments grow, move and drop what is out of reach."""
    history, clock = History(), 0
    for pause, lag, units in steps:
        clock += pause
        history.tx(clock - lag, units, arrival=clock, merchant=f"m{units % 40}")
    expected = judge(history)
    assert_close(replay(history), expected)
    assert_close(replay(history, range(0, len(steps), batch), lambda n: n % 3 == 0), expected)


def test_window_holds_its_end_and_not_its_start():
    """The one-minute window (t - 60 s, t].

    time s   0        1        60       61
             a        b        c        d
                      (-----------------]  d: b is exactly 60 s old: out
    """
    history = History()
    for second, units in ((0, 10_000), (1, 20_000), (60, 40_000), (61, 80_000)):
        history.tx(second * SECOND, units)
    assert column(history, "count_1m") == [1, 2, 2, 2]
    assert column(history, "sum_1m") == [1, 3, 6, 12]


def test_late_event_sees_its_own_past_and_is_seen_only_by_later_ones():
    """Arrival order a b late d; event order a late b d.

    event min   0     2       3     4
                a     late    b     d
    """
    history = History()
    history.tx(0, 10_000)
    history.tx(3 * MINUTE, 20_000)
    history.tx(2 * MINUTE, 40_000, arrival=3 * MINUTE)
    history.tx(4 * MINUTE, 80_000)
    assert column(history, "sum_5m") == [1, 3, 5, 15]
    assert column(history, "count_all") == [0, 1, 2, 3]
    assert replay(history).late.tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("again_after", "is_duplicate"),
    [(0, True), (7 * DAY, True), (7 * DAY + HOUR, True), (7 * DAY + HOUR + 1, False), (80 * DAY, False)],
)
def test_repetition_is_recognised_for_the_allowed_lateness_and_an_hour(again_after, is_duplicate):
    history = History()
    history.tx(0, transaction_id="x")
    history.tx(again_after, transaction_id="x")
    assert replay(history).duplicate.tolist() == [False, is_duplicate]


def test_duplicate_leaves_no_trace():
    plain, repeated = History(), History()
    for history in (plain, repeated):
        history.tx(0, transaction_id="x")
        if history is repeated:
            history.tx(SECOND, 9_999_999, transaction_id="x", merchant="other")
        history.tx(2 * SECOND, transaction_id="y")
    kept = replay(repeated).features[[0, 2]]
    assert kept.tobytes() == replay(plain).features.tobytes()


@pytest.mark.parametrize(("pause", "seen_before"), [(90 * DAY, 1), (90 * DAY + 1, 0)])
def test_card_starts_afresh_after_90_days_of_silence(pause, seen_before):
    history = History()
    history.tx(0, 2_000_000)
    history.tx(pause, 2_000_000)
    assert column(history, "count_all") == [0, seen_before]
    assert replay(history).suspicious == [(1, 1), (1, 1 + seen_before)]


@pytest.mark.parametrize("cuts", [(), (1,)], ids=["one batch", "two batches"])
def test_alerts_from_before_the_silence_are_forgotten_in_whatever_batch_they_were(cuts):
    """alert ---- 91 days of silence ---- alert: the second is the card's first again."""
    history = History()
    history.tx(0, 2_000_000)
    history.tx(91 * DAY, 2_000_000)
    assert replay(history, cuts).suspicious == [(1, 1), (1, 1)]


def test_profile_survives_the_silence():
    history = History()
    history.profile("c", 0, risk_tier=3)
    history.tx(0)
    history.tx(200 * DAY)
    assert column(history, "risk_tier") == [3, 3]


def test_cards_do_not_see_each_other():
    history = History()
    for second in range(20):
        history.tx(second * SECOND, card=f"card{second % 4}", transaction_id=f"x{second // 4}")
    result = replay(history)
    assert not result.duplicate.any()
    assert result.features[-4:, COLUMN["count_1m"]].tolist() == [5, 5, 5, 5]


def test_state_of_many_cards_grows_and_keeps_every_one():
    """More cards than the first arrays hold, in batches; each card's third event knows the two before it."""
    history = History()
    for turn in range(3):
        for number in range(3000):
            history.tx(turn * MINUTE, card=f"card{number}", transaction_id=f"t{turn}")
    result = replay(history, (1000, 4500), lambda batch: batch == 1)
    assert (result.features[:, COLUMN["count_all"]] == np.repeat((0, 1, 2), 3000)).all()


def test_arrivals_that_go_back_are_judged_alike_in_any_batches():
    """A broker's clock stepped back: the third transaction arrives 'before' the two accepted already.

    profile  v1 at 0 ------- v2 at 50 s ---------- v3 at 105 s
    tx                                     100 s                110 s   and then 20 s
    It is judged as if it arrived with the one before it: what lay further back may be gone.
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

"""Hot cards (more than 512 events within 37 days): bounded cost, and an error of at most one bucket."""

import math
import random

import numpy as np
import pytest
from harness.log_world import DAY, HOUR, MINUTE, SECOND, START
from histories import History, assert_close, assert_same, judge, one_batch, replay

from feature_store.catalogue import COLUMN, WINDOWS
from feature_store.kernels.hot import BUCKETS_PER_CARD
from feature_store.layout import MOST_EVENTS, TRANSACTION
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.pieces import read_piece, write_piece

pytestmark = pytest.mark.unit


def busy(n: int, pause: int, seed: int = 0) -> History:
    """A card used about every `pause` ms at 30 merchants; some events are up to a minute late."""
    rng, history, clock = np.random.default_rng(seed), History(), 0
    for _ in range(n):
        clock += int(rng.integers(0, 2 * pause))
        lag = int(rng.integers(0, MINUTE)) if rng.random() < 0.05 else 0
        history.tx(
            clock - lag, int(rng.integers(1, 3_000_000)), arrival=clock, merchant=f"m{rng.integers(0, 30)}",
            country=("FR", "DE", "US")[rng.integers(0, 3)],
        )  # fmt: skip
    return history


def burst(history: History, rng: random.Random, begin: int, length: int, events: int) -> None:
    """Add transactions of one card, arriving within `length` ms; some late, some with an earlier one's id."""
    for step in range(events):
        arrival = begin + length * step // events
        is_late, repeats = rng.random() < 0.05, step and rng.random() < 0.02
        history.tx(
            arrival - rng.randrange(length) if is_late else arrival,
            round(rng.lognormvariate(3, 1) * 10_000),
            arrival=arrival,
            merchant=f"m{rng.randrange(300)}",
            country=rng.choice(("FR", "DE", "US")),
            transaction_id=f"t{rng.randrange(step)}" if repeats else None,
        )


@pytest.mark.parametrize("length", [20 * SECOND, 10 * MINUTE, 3 * HOUR, 20 * DAY])
def test_oracle_and_kernels_agree_on_a_hot_card(length):
    history, rng = History(), random.Random(length)
    burst(history, rng, 0, length, 1_100)
    burst(history, rng, length + DAY, length, 600)
    assert_close(replay(history), judge(history))


def test_oracle_and_kernels_agree_on_a_quiet_card():
    history = History()
    burst(history, random.Random(7), 0, 60 * DAY, 400)
    assert_close(replay(history), judge(history))


def test_card_is_exact_up_to_512_events():
    history = busy(MOST_EVENTS, MINUTE)
    np.testing.assert_allclose(
        replay(history).features, judge(history, math.inf).features, rtol=1e-9, atol=1e-9, equal_nan=True
    )


@pytest.mark.parametrize("pause", [SECOND, MINUTE, HOUR], ids=["second", "minute", "hour"])
def test_hot_windows_are_off_by_no_more_than_one_bucket(pause):
    """The window of a transaction at event time t has the length w; 60 buckets of w / 60 are counted for it.

    The newest of them holds t and, if t is late, perhaps events after t. The bucket in which the window
    begins is not among them.

    (t - w, t]           (-----------------------------]
    counted buckets        |....|....|         |....|....|
                         '- missed: less than w / 60    '- up to w / 60 after t
    """
    history = busy(2500, pause)
    hot, exact = replay(history).features, judge(history, math.inf).features
    times = np.sort(np.array([tx.event_time for tx in history.transactions]))
    for name, length in WINDOWS.items():
        width = length // 60
        for row, tx in enumerate(history.transactions):
            ours, wanted = hot[row, COLUMN[f"count_{name}"]], exact[row, COLUMN[f"count_{name}"]]
            old, new = tx.event_time - length, tx.event_time
            missed = np.searchsorted(times, old + width, "right") - np.searchsorted(times, old, "right")
            extra = np.searchsorted(times, new + width, "right") - np.searchsorted(times, new, "right")
            assert wanted - missed <= ours <= wanted + extra, (name, row)


@pytest.mark.parametrize("pause", [SECOND, MINUTE], ids=["second", "minute"])
def test_hot_counts_by_arrival_miss_less_than_one_bucket(pause):
    """Counts never exceed the true ones, and miss at most the arrivals in the oldest 60th of the window."""
    history = busy(2500, pause)
    hot, exact = replay(history).features, judge(history, math.inf).features
    arrivals = np.array([tx.arrival for tx in history.transactions])
    for name in ("1m", "5m", "1h"):
        old = arrivals - WINDOWS[name]
        missed = np.searchsorted(arrivals, old + WINDOWS[name] // 60, "right") - np.searchsorted(
            arrivals, old, "right"
        )
        ours, wanted = hot[:, COLUMN[f"arrivals_{name}"]], exact[:, COLUMN[f"arrivals_{name}"]]
        assert (ours <= wanted).all()
        assert (ours >= wanted - missed).all()
        assert (ours[:MOST_EVENTS] == wanted[:MOST_EVENTS]).all()


def test_features_of_single_events_stay_exact_on_a_hot_card():
    history = busy(2000, MINUTE)
    hot, exact = replay(history).features, judge(history, math.inf).features
    for name in (
        "time_since_previous",
        "ratio_median",
        "travel_speed",
        "count_all",
        "zscore_all",
        "ratio_robust",
    ):
        np.testing.assert_allclose(hot[:, COLUMN[name]], exact[:, COLUMN[name]], rtol=1e-9, err_msg=name)


def test_distinct_merchants_of_a_hot_card_are_estimated_closely():
    history = busy(2500, MINUTE)
    hot, exact = (
        r.features[-1000:, COLUMN["merchants_24h"]] for r in (replay(history), judge(history, math.inf))
    )
    assert np.abs(hot - exact).max() <= 6


def test_no_estimate_is_so_near_to_a_half_that_the_last_bits_of_a_logarithm_change_its_rounding():
    estimates = [-256 * math.log(zeros / 256) for zeros in range(1, 257)]
    assert min(abs(estimate % 1 - 0.5) for estimate in estimates) > 1e-4


@pytest.mark.parametrize("cuts", [(700,), tuple(range(0, 1500, 97))], ids=["once", "often"])
def test_hot_card_is_the_same_in_any_batches_and_after_rebuilds(cuts):
    history = busy(1500, MINUTE)
    history.profile("c", 0)
    whole = replay(history)
    assert_same(replay(history, cuts), whole)
    assert_same(replay(history, cuts, lambda batch: batch % 2 == 0), whole)


def test_repetition_on_a_hot_card_is_recognised_among_the_last_thousand():
    history = busy(1500, SECOND)
    last = history.transactions[-1].arrival - START
    for number in (1499, 1000, 520):
        history.again(history.transactions[number], last)
    assert replay(history).duplicate[-3:].tolist() == [True, True, True]


def test_card_of_fifty_thousand_events_and_merchants_takes_bounded_memory():
    """All events are within a minute, each at another merchant; a bucket has 256 bits for its merchants."""
    n = 50_000
    rows = np.zeros(n, dtype=TRANSACTION)
    rows["lo"] = rows["hi"] = 1
    rows["transaction"] = rows["merchant"] = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    )
    rows["time"] = rows["arrival"] = START + np.arange(n)
    rows["amount"] = 10_000
    state = GroupState(MemoryArena())
    for start in range(0, n, 1000):
        judged, _ = one_batch(state, History().change_records(), rows[start : start + 1000])
        assert not judged.duplicate.any()
        assert state.event_count <= MOST_EVENTS
    assert judged.features[-1, COLUMN["count_1h"]] == n
    assert state.arena.nbytes < 2_000_000


def test_many_cards_become_hot_one_after_another():
    """The arrays of rings grow together, and a snapshot keeps the ring number of every card."""
    state = GroupState(MemoryArena())
    for card in range(1, 20):
        rows = np.zeros(MOST_EVENTS + 50, dtype=TRANSACTION)
        rows["hi"] = rows["lo"] = card
        rows["transaction"] = np.arange(rows.size)
        rows["time"] = rows["arrival"] = START + SECOND * np.arange(rows.size)
        state.apply(rows, state.card_numbers(rows))
        hot = state.arena.arrays["hots"].size
        assert state.arena.arrays["buckets"].size == hot * BUCKETS_PER_CARD
        copy = GroupState(MemoryArena())
        read_piece(copy, 0, write_piece(state, 0))
        assert copy.arena.arrays["cards"]["hot"][:card].tolist() == list(range(card))
        for name in ("hots", "buckets", "latest"):  # all cards have the same transactions
            per_card = state.arena.arrays[name].size // hot
            first, *others = np.split(state.arena.arrays[name][: card * per_card], card)
            assert all(ring.tobytes() == first.tobytes() for ring in others), name
            assert copy.arena.arrays[name][: card * per_card].tobytes() == first.tobytes() * card, name

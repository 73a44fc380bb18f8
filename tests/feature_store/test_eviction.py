"""Eviction removes forgotten cards; the time of the sweep changes no result."""

import numpy as np
import pytest
from harness.log_world import DAY, HOUR, MINUTE, SECOND
from histories import (
    History,
    Pieces,
    assert_close,
    assert_same,
    histories,
    judge,
    one_batch,
    persist,
    rebuilt,
    replay,
    strangers,
)
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.kernels import eviction
from feature_store.kernels.cards import find
from feature_store.kernels.hashing import hash_string
from feature_store.layout import EMPTY, EVENTS, HOT_CARDS, MOST_EVENTS
from feature_store.state import deltas, journal, piece_records
from feature_store.state.arena import MemoryArena
from feature_store.state.card_view import find_card
from feature_store.state.codec import StateDamagedError
from feature_store.state.group_state import GroupState
from feature_store.state.journal import Meta
from feature_store.state.pieces import decode_piece, write_piece

pytestmark = pytest.mark.unit


class Job:
    """A state that is persisted after each batch."""

    def __init__(self) -> None:
        self.state, self.store, self.meta = GroupState(MemoryArena()), Pieces(), Meta()

    def run(self, history: History, partition: int = 0) -> None:
        records = history.records()
        records["partition"] = partition
        _, delta = one_batch(self.state, history.change_records(), records)
        persist(self.store, self.meta, self.state, delta)

    def clock(self, days: float, partition: int = 0) -> None:
        """Run a batch of one transaction, of the card `clock`: it moves the partition's time on."""
        history = History()
        history.tx(int(days * DAY), card="clock", transaction_id=f"clock {days} {partition}")
        self.run(history, partition)

    def number(self, card: str) -> int:
        arrays = self.state.arena.arrays
        return int(find(arrays["index"], arrays["cards"], *map(np.uint64, hash_string(card))))


def once(*cards: str) -> History:
    history = History()
    for card in cards:
        history.tx(0, card=card)
    return history


@pytest.mark.parametrize(("days", "is_known"), [(90, True), (91, True), (91.01, False)])
def test_card_is_evicted_a_day_after_it_is_forgotten(days, is_known):
    assert_evicted(once("c", "c"), days, is_known)


@pytest.mark.parametrize(("days", "is_known"), [(8, True), (9, True), (9.01, False)])
def test_stranger_is_evicted_a_day_after_it_is_forgotten(days, is_known):
    assert_evicted(once("c"), days, is_known)


def assert_evicted(history: History, days: float, is_known: bool) -> None:
    job = Job()
    job.run(history)
    job.clock(days)
    assert (job.number("c") >= 0) == is_known
    for state in (job.state, rebuilt(job.store)[0]):
        assert state.card_count == state.cards_without_profile == 1 + is_known
    assert (find_card(job.store.items(), *hash_string("c")) is not None) == is_known


@pytest.mark.parametrize(("hours", "is_known"), [(8 * 24, True), (8 * 24 + 1, False)])
def test_a_forgotten_stranger_keeps_only_a_profile_that_arrived_later(hours, is_known):
    job, history = Job(), once("c")
    history.profile("c", hours * HOUR, "c")
    job.run(history)
    assert job.state.cards_without_profile == 0
    job.clock(10)
    card = job.state.arena.arrays["cards"][job.number("c")]
    assert (card["seen"] == 1, card["segment"] != EMPTY) == (is_known, is_known)
    assert card["profile"] != EMPTY
    for state in (job.state, rebuilt(job.store)[0]):
        assert (state.card_count, state.cards_without_profile) == (2, 1)


def test_flood_of_strangers_is_evicted_as_fast_as_it_arrives(monkeypatch):
    """40 new cards a day, in one batch; without new cards, a sweep looks at 5 cards and evicts at most 2."""
    monkeypatch.setattr(eviction, "SWEEP", 5)
    monkeypatch.setattr(eviction, "MOST_EVICTED", 2)
    job, known = Job(), []
    for day in range(60):
        history = History()
        for number in range(40):
            history.tx(day * DAY, card=f"{day}/{number}")
        job.run(history)
        known.append(job.state.card_count)
    # a card stays for ten days, and up to ten more until the sweep reaches it; 2,400 cards arrive in total
    assert max(known) <= 40 * 20
    assert job.state.numbers_given <= 40 * 20


def test_a_partition_that_is_ahead_evicts_no_card_of_another():
    """Partition 1 is read months ahead of partition 0, where the card's next transaction is still to come."""
    job = Job()
    job.run(once("c"), partition=0)
    job.clock(200, partition=1)
    assert job.number("c") >= 0
    job.clock(92, partition=0)
    assert job.number("c") < 0


def test_the_profile_stays_without_its_invisible_versions():
    job, history = Job(), once("c")
    for day in range(3):
        history.profile("u", day * DAY, "c", risk_tier=day)
    job.run(history)
    job.clock(100)
    number = job.number("c")
    card = job.state.arena.arrays["cards"][number]
    assert (card["segment"], card["alerts"], card["seen"]) == (EMPTY, 0, 0)
    newest = job.state.profiles[card["profile"]]
    assert (newest["risk_tier"], newest["older"]) == (2, EMPTY)
    assert find_card(job.store.items(), *hash_string("c")).number == number


def test_profiles_of_cards_without_transactions_stay():
    job, history = Job(), History()
    history.profile("c", 0, "c")
    job.run(history)
    for days in (100, 200, 300):
        job.clock(days)
    assert job.number("c") >= 0


@pytest.mark.parametrize("snapshots", [0, 1, 6], ids=["deltas only", "both", "snapshots"])
def test_a_reused_number_does_not_mix_up_two_cards(snapshots, monkeypatch):
    monkeypatch.setattr(journal, "SNAPSHOT_BYTES_PER_DELTA_BYTE", snapshots)
    job = Job()
    job.run(once("first", "second", "third"))
    job.clock(100)
    history = History()
    for card in ("new", "second"):
        history.tx(100 * DAY + HOUR, 3 * 10_000, card=card)
    job.run(history)
    assert job.state.numbers_given == 4
    assert job.state.card_count == 3
    again, _ = rebuilt(job.store)
    strangers = History()
    for number in range(10):
        strangers.tx(100 * DAY + HOUR, card=f"stranger {number}")
    for state in (job.state, again):
        one_batch(state, strangers.change_records(), strangers.records())
        judged, _ = one_batch(state, history.change_records(), history.records())
        assert judged.duplicate.all()
        assert state.card_count == 13
        assert state.numbers_given == 13
    assert find_card(job.store.items(), *hash_string("first")) is None
    for card in ("new", "second"):
        card_state = find_card(job.store.items(), *hash_string(card))
        assert card_state.state.arena.arrays["cards"][card_state.number]["seen"] == 1


def test_an_unused_number_of_a_rebuilt_state_holds_no_other_cards_records():
    """One card is evicted, one is hot, with profile and alerts; live and rebuilt state write equal pieces."""
    job = Job()
    job.run(once("evicted"))
    history = History()
    history.profile("u", 8 * DAY, "kept")
    for second in range(MOST_EVENTS + 1):
        history.tx(8 * DAY + second * SECOND, 10**7, card="kept")
    job.run(history)
    job.clock(10)
    assert job.number("evicted") < 0
    assert job.number("kept") == 1
    assert job.state.counters[HOT_CARDS] == 1
    again, _ = rebuilt(job.store)
    piece = write_piece(job.state, 0)
    assert write_piece(again, 0) == piece
    assert [decode_piece(piece, "0").version_counts[number] for number in (0, 1)] == [0, 1]
    # a record of an unused number that is all zero refers to another card's records
    again.arena.arrays["cards"][0] = 0
    with pytest.raises(StateDamagedError, match="state piece 0 has records of an unused card number"):
        decode_piece(write_piece(again, 0), "0")


def test_space_of_evicted_cards_is_used_again():
    """Generations of cards, each of which falls silent for ever; the arrays do not grow."""
    job, sizes = Job(), []
    for generation in range(8):
        history = History()
        for number in range(300):
            for minute in range(1 + number % 20):
                history.tx(
                    generation * 100 * DAY + minute * MINUTE, 2_000_000 * (number % 2),
                    card=f"{generation}/{number}", transaction_id=f"{number} {minute}",
                )  # fmt: skip
        job.run(history)
        job.clock((generation + 1) * 100 - 1)
        sizes.append((job.state.numbers_given, int(job.state.counters[EVENTS]), job.state.card_count))
    assert len(set(sizes)) == 1
    assert sizes[0][2] == 1
    again, _ = rebuilt(job.store)
    assert again.card_count == 1


def test_the_index_finds_every_card_after_evictions():
    """900 cards, many in consecutive slots of the index; every third one is evicted."""
    job, names = Job(), [f"card {number}" for number in range(900)]
    job.run(once(*names))
    stay = History()
    for name in (name for number, name in enumerate(names) if number % 3):
        stay.tx(5 * DAY, card=name, transaction_id=f"again {name}")
    job.run(stay)
    job.clock(12)
    assert [job.number(name) >= 0 for name in names] == [number % 3 > 0 for number in range(900)]
    assert job.state.card_count == 601


def test_work_of_a_batch_is_bounded(monkeypatch):
    monkeypatch.setattr(eviction, "MOST_EVICTED", 10)
    job = Job()
    job.run(once(*(f"card {number}" for number in range(100))))
    known = []
    for hour in range(12):
        job.clock(100 + hour / 24)
        known.append(job.state.card_count)
    # the first sweep evicts 12, two more for the card that its batch has added: the one of `clock`
    assert known == [89, 79, 69, 59, 49, 39, 29, 19, 9, 1, 1, 1]


SWEEPS = (
    st.lists(st.integers(1, 39), max_size=8),
    st.sets(st.integers(0, 8)),
    st.sampled_from((0, 1, 6)),
)
"""Strategies for the arguments `cuts`, `when` and `snapshots` of `assert_indifferent`."""


@examples(30, thorough=4_000)
@given(histories(), *SWEEPS)
def test_results_do_not_depend_on_when_cards_are_evicted(history, cuts, when, snapshots):
    """Batches cut elsewhere sweep at other times; the oracle, which never evicts, has the same duplicates."""
    assert_indifferent(history, cuts, when, snapshots)


@examples(40, thorough=4_000)
@given(strangers(), *SWEEPS)
def test_results_do_not_depend_on_when_strangers_are_evicted(history, cuts, when, snapshots):
    """Few transactions a card; pauses, also before profile changes, are often within 1 ms of 8 days."""
    assert_indifferent(history, cuts, when, snapshots)
    assert_close(judge(history), replay(history, range(1, 40)))


def assert_indifferent(history: History, cuts: list[int], when: set[int], snapshots: int) -> None:
    whole = replay(history)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SNAPSHOT_BYTES_PER_DELTA_BYTE", snapshots)
        for module in (piece_records, journal, deltas):
            patch.setattr(module, "CARDS_PER_PIECE", 2)
        assert_same(replay(history, cuts, when.__contains__), whole)
        assert_same(replay(history, range(1, 40), when.__contains__), whole)
    assert judge(history).duplicate.tolist() == whole.duplicate.tolist()


def test_two_free_halves_are_merged():
    """128 cards of one event fill 512 places with segments of 4; after their eviction a segment of 512 fits.

    The card `clock` and the smaller segments of the growing card `busy` take another 512 places.
    """
    job = Job()
    job.run(once(*(f"card {number}" for number in range(MOST_EVENTS // 4))))
    assert job.state.counters[EVENTS] == MOST_EVENTS
    job.clock(100)
    job.clock(101)
    history = History()
    for minute in range(MOST_EVENTS):
        history.tx(101 * DAY + minute * MINUTE, card="busy")
    job.run(history)
    assert job.state.counters[EVENTS] == MOST_EVENTS + MOST_EVENTS

"""Lookup of transactions by their ids, in a key group's state and in one rebuilt from pieces."""

import numpy as np
import pytest

from feature_store.catalogue import DAY_MS, HOUR_MS
from feature_store.layout import MERCHANT_MASK, PROFILE, TRANSACTION, TRANSACTION_MASK, UPSERT
from feature_store.state.arena import MemoryArena
from feature_store.state.card_lookup import find_transactions, label_age_ms
from feature_store.state.deltas import Delta
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, append, rebuild

pytestmark = pytest.mark.unit

START = 1_780_000_200_000
LATENESS = 7 * DAY_MS
CARD = 77


def transactions(times: list[int], amounts: list[float] | None = None) -> np.ndarray:
    """Transactions of one card; the n-th has the id 2^40 n + n and is at merchant 5 n."""
    batch = np.zeros(len(times), dtype=TRANSACTION)
    number = np.arange(len(times), dtype=np.uint64)
    batch["lo"], batch["hi"] = CARD, 1
    batch["time"] = batch["arrival"] = START + np.array(times)
    batch["amount"] = 100_000 * np.array(amounts or [1.0] * len(times))
    batch["transaction"] = (number << np.uint64(40)) + number
    batch["merchant"] = 5 * number
    return batch


class Card:
    """A state with one card's transactions, and its pieces."""

    def __init__(self, batch: np.ndarray, *, profile: bool = True) -> None:
        self.state = GroupState(MemoryArena(), LATENESS, keeps_ids=True)
        changes = np.zeros(int(profile), dtype=PROFILE)
        changes["lo"], changes["hi"], changes["change"] = CARD, 1, UPSERT
        changes["arrival"], changes["older"] = START, -1
        change_cards = self.state.card_numbers(changes)
        self.state.change_profiles(changes, change_cards)
        cards = self.state.card_numbers(batch)
        self.state.apply(batch, cards)
        self._store, self._meta = MemoryPieces(), Meta()
        no = np.zeros(batch.size, dtype=np.bool_)
        append(self._store, self._meta, self.state, Delta(changes, change_cards, batch, cards, no, no))
        for _ in range(3):  # until a snapshot holds the card, and no delta does
            empty = Delta(changes[:0], change_cards[:0], batch[:0], cards[:0], no[:0], no[:0])
            append(self._store, self._meta, self.state, empty)
        assert self._meta.oldest > 1

    def rebuilt(self) -> GroupState:
        again = GroupState(MemoryArena(), LATENESS, keeps_ids=True)
        rebuild(self._store, self._meta, again)
        return again


def ask(state: GroupState, number: int, as_of: int) -> list[tuple[int, int, bool]]:
    """Look up the n-th transaction; returns (merchant, arrival from START, spike) of each match."""
    transaction = ((number << 40) + number) & TRANSACTION_MASK
    matches = find_transactions(state, CARD, 1, transaction, START + as_of)
    return [(int(m), int(a) - START, bool(s)) for m, a, s in matches.tolist()]


@pytest.mark.parametrize("count", [5, 700], ids=["card", "hot card"])
def test_merchant_arrival_and_spike_survive_a_rebuild(count):
    amounts = [1.0] * (count - 2) + [9.0, 1.0]
    card = Card(transactions([n * HOUR_MS // 2 for n in range(count)], amounts))
    now = count * HOUR_MS // 2 + 7 * DAY_MS
    for state in (card.state, card.rebuilt()):
        for number in range(count - 3, count):
            at = number * HOUR_MS // 2
            assert ask(state, number, now) == [(5 * number & MERCHANT_MASK, at, number == count - 2)]


def test_unknown_cards_and_ids_are_not_found():
    card = Card(transactions([0, HOUR_MS]))
    assert ask(card.state, 2, DAY_MS) == []
    assert find_transactions(card.state, CARD + 1, 1, 0, START + DAY_MS).size == 0
    assert find_transactions(GroupState(MemoryArena()), CARD, 1, 0, START).size == 0


def test_a_label_finds_what_arrived_before_it_and_happened_less_than_36_days_ago():
    card = Card(transactions([0, HOUR_MS]))
    oldest = label_age_ms(LATENESS)
    assert oldest == 36 * DAY_MS
    assert [len(ask(card.state, 1, at)) for at in (HOUR_MS - 1, HOUR_MS)] == [0, 1]
    assert [len(ask(card.state, 1, HOUR_MS + oldest + ms)) for ms in (-1, 0)] == [1, 0]


@pytest.mark.parametrize(("others", "profile", "found"), [(0, False, 0), (1, False, 1), (0, True, 1)])
def test_a_strangers_transaction_is_found_within_the_allowed_lateness(others, profile, found):
    card = Card(transactions([0, HOUR_MS][: 1 + others]), profile=profile)
    assert len(ask(card.state, 0, LATENESS)) == 1
    assert len(ask(card.state, 0, LATENESS + 1)) == found

"""The view of one card, read from persisted pieces, agrees with the features of its transactions."""

import numpy as np
import pytest
from harness.log_world import DAY, HOUR, MINUTE, SECOND, START
from histories import History, Pieces, one_batch, persist

from feature_store.catalogue import COLUMN, WINDOWS
from feature_store.kernels.hashing import hash_string
from feature_store.state.arena import MemoryArena
from feature_store.state.card_view import describe, find_card
from feature_store.state.group_state import GroupState
from feature_store.state.journal import Meta
from streaming_job.facts.hours import OPEN
from streaming_job.facts.table import COUNTED, REPORTED
from streaming_job.group.core import ROLLOUTS, SCHEMAS
from streaming_job.group.trial_pieces import APPLIED, FEATURES, UNITS

pytestmark = pytest.mark.unit


def persisted(history: History, batches: int = 1) -> tuple[Pieces, np.ndarray]:
    """The pieces after a history, and the features of its transactions."""
    store, state, meta = Pieces(), GroupState(MemoryArena()), Meta()
    records, changes = history.records(), history.change_records()
    features = []
    for number, batch in enumerate(np.array_split(records, batches)):
        judged, delta = one_batch(state, changes if number == 0 else changes[:0], batch)
        features.append(judged.features)
        persist(store, meta, state, delta)
    return store, np.concatenate(features)


def known(store: Pieces, card: str = "c") -> dict:
    card_state = find_card(store.items(), *hash_string(card))
    assert card_state is not None
    return describe(card_state)


def assert_windows(windows: dict, features: np.ndarray) -> None:
    """Check that the windows equal the features of the card's newest transaction."""
    for name in WINDOWS:
        for stem, value in windows[name].items():
            assert value == features[COLUMN[f"{stem}_{name}"]], (stem, name)


@pytest.mark.parametrize("batches", [1, 7, 40])
def test_windows_are_those_of_the_last_transaction(batches: int) -> None:
    """The card is in snapshots and deltas, older and newer ones, together with up to 3,000 others."""
    history = History()
    rng = np.random.default_rng(4)
    for number in range(6_000):
        card = "c" if number % 150 == 149 else f"other{rng.integers(3_000)}"
        merchant, units = f"m{rng.integers(5)}", int(rng.integers(1, 900_000))
        history.tx(
            number * 10 * MINUTE, units, card=card, merchant=merchant, country=rng.choice(["DE", "FR"])
        )
    store, features = persisted(history, batches)
    card_state = known(store)
    assert_windows(card_state["windows"], features[-1])
    assert card_state["transactions"] == 40
    assert card_state["kept_events"]["count"] > 20
    assert card_state["last_event_time"] == START + 5_999 * 10 * MINUTE
    assert not card_state["hot"]


def test_windows_of_hot_cards_come_from_their_rings() -> None:
    history = History()
    rng = np.random.default_rng(4)
    for number in range(800):
        history.tx(number * SECOND, int(rng.integers(1, 900_000)), merchant=f"m{rng.integers(50)}")
    store, features = persisted(history, 3)
    card_state = known(store)
    assert card_state["hot"]
    assert_windows(card_state["windows"], features[-1])


def test_pieces_without_cards_are_passed_over() -> None:
    history = History()
    history.tx(0, 5)
    store, _ = persisted(history)
    facts = [f"{prefix}7" for prefix in (COUNTED, REPORTED, OPEN)]
    for name in (ROLLOUTS, SCHEMAS, UNITS, APPLIED, FEATURES, *facts):
        store.put(name, b"[]")
    assert known(store)["transactions"] == 1


def test_profile_versions_come_newest_first() -> None:
    history = History()
    history.profile("r", 0, credit_limit=500.0)
    history.profile("u", HOUR, status="blocked", home_country="DE", risk_tier=3)
    history.profile("d", 2 * HOUR)
    store, _ = persisted(history)
    deleted, blocked, first = known(store)["profiles"]
    assert deleted == {"known_from": START + 2 * HOUR, "deleted": True, "status": "blocked"}
    assert blocked["known_from"] == START + HOUR
    assert (blocked["status"], blocked["home_country"], blocked["risk_tier"]) == ("blocked", "DE", 3)
    assert first == {
        "known_from": None, "status": "active", "home_country": "FR", "credit_limit": 500.0,
        "risk_tier": 0, "opened_on": "2024-10-04",
    }  # fmt: skip
    assert known(store)["windows"] == {}


def test_suspicious_count_is_as_of_the_last_arrival() -> None:
    """Alerts (100.00 and more) at 0, 1 h and 30 h; then a small payment at 40 h, and one at 60 h."""
    history = History()
    for hours, units in ((0, 2_000_000), (1, 2_000_000), (30, 2_000_000), (40, 10_000)):
        history.tx(hours * HOUR, units)
    assert known(persisted(history)[0])["suspicious_count"] == {"day": 1, "total": 3}
    history.tx(60 * HOUR, 10_000)
    assert known(persisted(history)[0])["suspicious_count"] == {"day": 0, "total": 3}


def test_late_transaction_does_not_move_the_windows_back() -> None:
    history = History()
    history.tx(0)
    history.tx(2 * DAY)
    history.tx(DAY + HOUR, arrival=2 * DAY)
    assert known(persisted(history)[0])["windows"]["24h"]["count"] == 2
    assert known(persisted(history)[0])["last_event_time"] == START + 2 * DAY


def test_an_unknown_card_has_no_view() -> None:
    history = History()
    history.tx(0)
    assert find_card(persisted(history)[0].items(), *hash_string("stranger")) is None
    assert find_card([], *hash_string("c")) is None

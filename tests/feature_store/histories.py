"""Random histories of a few cards: late, duplicate and simultaneous events, bursts, pauses, profile changes.

A history is a log: transactions and profile changes in the order of their arrival. `replay` runs it through
the kernels in any batches, and `judge` through the naive oracle.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from harness.log_world import DAY, HOUR, MINUTE, SECOND, START, LogWorld
from hypothesis import strategies as st
from numpy.typing import NDArray

from feature_store.catalogue import NAMES
from feature_store.kernels.hashing import hash_string
from feature_store.layout import MOST_EVENTS, PROFILE, STATUSES, TRANSACTION, country_code, currency_code
from feature_store.state.arena import MemoryArena
from feature_store.state.deltas import Delta
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, append, load_meta, rebuild, seal
from loadtests.oracle.card import Card
from loadtests.oracle.features import compute
from loadtests.oracle.records import Transaction
from loadtests.oracle.tables import ProfileLog
from loadtests.oracle.view import View
from streaming_job.decode.profiles import profile_change

ALERT_FROM = 1_000_000
"""Amount from which a transaction is an alert in these tests: 100.00, in 1/10,000 of the currency unit."""


class History(LogWorld):
    """A log whose transactions are decoded, without those that would be dead letters."""

    transactions: list[Transaction]  # type: ignore[assignment]

    def tx(  # type: ignore[override]
        self,
        event_time: int,
        units: int = 100_000,
        *,
        arrival: int | None = None,
        card: str = "c",
        merchant: str = "m",
        country: str = "FR",
        transaction_id: str | None = None,
    ) -> None:
        """Append a transaction; times in ms from START; the arrival defaults to the event time."""
        offset = len(self.transactions)
        self.transactions.append(
            Transaction(
                transaction_id or f"t{offset}", card, merchant, units, "EUR", country, START + event_time,
                START + (event_time if arrival is None else arrival), 0, offset,
            )
        )  # fmt: skip

    def again(self, tx: Transaction, arrival: int, **changes: object) -> None:
        """Append `tx` with `changes`; `arrival` is in ms from START, `changes["event_time"]` since 1970."""
        changes |= {"arrival": START + arrival, "offset": len(self.transactions)}
        self.transactions.append(tx._replace(**changes))  # type: ignore[arg-type]

    def records(self) -> NDArray[np.void]:
        """The transactions as kernel records."""
        out = np.zeros(len(self.transactions), dtype=TRANSACTION)
        for row, tx in zip(out, self.transactions, strict=True):
            row["lo"], row["hi"] = hash_string(tx.card_id)
            row["transaction"] = hash_string(tx.transaction_id)[0]
            row["merchant"] = hash_string(tx.merchant_id)[0]
            row["country"] = country_code(tx.country)
            row["currency"] = currency_code(tx.currency)
            row["time"], row["arrival"], row["amount"] = tx.event_time, tx.arrival, tx.units
            row["offset"] = tx.offset
        return out

    def change_records(self) -> NDArray[np.void]:
        """The profile changes as kernel records."""
        rows = [
            profile_change(record.key, record.value, record.partition, record.offset, record.timestamp)
            for record in self.profiles
        ]
        return np.concatenate(rows) if rows else np.zeros(0, dtype=PROFILE)


@dataclass
class Judged:
    """Outcomes of n transactions."""

    features: NDArray[np.float64]
    """Shape (n, len(NAMES)); NaN in the rows of duplicates."""
    duplicate: NDArray[np.bool_]
    conflicting: NDArray[np.bool_]
    standing: list[str]
    """Status of the card by its profile, `active` without a profile; `-` in the rows of duplicates."""
    late: NDArray[np.bool_]
    suspicious: list[tuple[int, int]]
    """suspicious_count (day, total) of each alert, in log order."""


class Pieces(MemoryPieces):
    """A `PieceStore` in memory; counts the bytes put, by the first letter of the name."""

    def __init__(self, *pieces: Mapping[str, bytes]) -> None:
        super().__init__(*pieces)
        self.written: Counter[str] = Counter()

    def put(self, name: str, blob: bytes) -> None:
        super().put(name, blob)
        self.written[name[0]] += len(blob)


def judge(history: History, most_events: float = MOST_EVENTS) -> Judged:
    """Outcomes by the oracle; a card with more than `most_events` events within 37 days becomes hot."""
    profiles = ProfileLog()
    assert profiles.read(history.profiles) == []
    cards: dict[str, Card] = {}
    n = len(history.transactions)
    flags = [np.zeros(n, np.bool_) for _ in range(3)]
    out = Judged(np.full((n, len(NAMES)), np.nan), *flags[:2], ["-"] * n, flags[2], [])
    for row, tx in enumerate(history.transactions):
        card = cards.get(tx.card_id)
        if card is None or card.is_forgotten(tx.arrival, 7 * DAY, partial(profiles.had_version, tx.card_id)):
            card = cards[tx.card_id] = Card(most_events)
        if card.has(tx):
            out.duplicate[row] = True
            continue
        view = View(tx, card, profiles.in_force(tx.card_id, tx.arrival))
        known = compute(view)
        out.features[row] = [known[name] for name in NAMES]
        out.late[row], out.conflicting[row] = view.late, view.conflicting
        out.standing[row] = profiles.status(tx.card_id, tx.arrival) or "active"
        if tx.units >= ALERT_FROM:
            card.alerts.append(tx.arrival)
            count = card.suspicious_count(tx.arrival)
            out.suspicious.append((count["day"], count["total"]))
    return out


def one_batch(
    state: GroupState,
    changes: NDArray[np.void],
    batch: NDArray[np.void],
    places: Callable[[NDArray[np.void]], NDArray[np.void] | None] = lambda records: None,
) -> tuple[Judged, Delta]:
    """Run one batch as the job does: tables, features, alerts; return its outcomes and its delta.

    Args:
        places: returns the place of each record's card (PLACE).
    """
    change_cards = state.card_numbers(changes, places(changes))
    state.change_profiles(changes, change_cards)
    cards = state.card_numbers(batch, places(batch))
    applied = state.apply(batch, cards)
    alerted = (batch["amount"] >= ALERT_FROM) & ~applied.duplicate
    counts = state.count_alerts(cards, batch["arrival"], alerted, applied.restarted)
    day, total = (count.tolist() for count in counts)
    kept = ~applied.duplicate
    delta = Delta(changes, change_cards, batch[kept], cards[kept], alerted[kept])
    late = applied.late & kept
    standing = [
        "-" if gone else STATUSES[s] for gone, s in zip(applied.duplicate, applied.standing, strict=True)
    ]
    suspicious = list(zip(day, total, strict=True))
    judged = Judged(applied.by_row(), applied.duplicate, applied.conflicting, standing, late, suspicious)
    return judged, delta


def persist(store: Pieces, meta: Meta, state: GroupState, delta: Delta) -> None:
    """Append a delta to the store, and end the epoch."""
    append(store, meta, state, delta)
    seal(store, meta)


def rebuilt(store: Pieces) -> tuple[GroupState, Meta]:
    """Rebuild the state that a store holds."""
    state, meta = GroupState(MemoryArena()), load_meta(store)
    rebuild(store, meta, state)
    return state, meta


def replay(
    history: History,
    cuts: Sequence[int] = (),
    rebuild_after: Callable[[int], bool] = lambda batch: False,
    read_ahead: int = 0,
) -> Judged:
    """Outcomes by the kernels.

    Args:
        cuts: batches end before these transactions.
        rebuild_after: whether, after the batch of this number (from 0), the state is dropped and rebuilt from
            its pieces.
        read_ahead: a batch holds the profile changes up to this many ms after its last arrival.
    """
    records, changes = history.records(), history.change_records()
    store, state, meta = Pieces(), GroupState(MemoryArena()), Meta()
    borders = sorted({0, len(records), *(cut for cut in cuts if 0 < cut < len(records))})
    parts, read = [], 0
    for number, (start, end) in enumerate(pairwise(borders)):
        batch = records[start:end]
        known = np.searchsorted(changes["arrival"], batch["arrival"].max() + read_ahead, side="right")
        part, delta = one_batch(state, changes[read : max(known, read)], batch)
        parts.append(part)
        read = max(read, int(known))
        persist(store, meta, state, delta)
        if rebuild_after(number):
            state, meta = rebuilt(store)
    return Judged(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.duplicate for part in parts]),
        np.concatenate([part.conflicting for part in parts]),
        [status for part in parts for status in part.standing],
        np.concatenate([part.late for part in parts]),
        [counts for part in parts for counts in part.suspicious],
    )


def _assert_same_but_features(a: Judged, b: Judged) -> None:
    assert a.duplicate.tolist() == b.duplicate.tolist()
    assert a.conflicting.tolist() == b.conflicting.tolist()
    assert a.standing == b.standing
    assert a.late.tolist() == b.late.tolist()
    assert a.suspicious == b.suspicious


def assert_same(a: Judged, b: Judged) -> None:
    """Check that two outcomes are equal bit for bit."""
    _assert_same_but_features(a, b)
    differs = np.argwhere((a.features != b.features) & ~(np.isnan(a.features) & np.isnan(b.features)))
    assert not len(differs), _first(differs, a, b)


def assert_close(a: Judged, b: Judged, tolerance: float = 1e-9) -> None:
    """Check that two outcomes are equal, features to a relative and absolute tolerance."""
    _assert_same_but_features(a, b)
    close = np.isclose(a.features, b.features, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert close.all(), _first(np.argwhere(~close), a, b)


def _first(places: NDArray[np.int64], a: Judged, b: Judged) -> str:
    row, column = places[0]
    return f"{NAMES[column]} of transaction {row}: {a.features[row, column]!r}, {b.features[row, column]!r}"


# pauses that put events on, just inside and just outside the edges of windows and of retention
_EDGES = (MINUTE, 5 * MINUTE, HOUR, DAY, 7 * DAY, 30 * DAY, 37 * DAY)
_PAUSES = st.one_of(
    st.just(0),
    st.integers(0, 2 * SECOND),
    st.integers(0, 2 * HOUR),
    st.sampled_from(_EDGES).flatmap(lambda edge: st.integers(edge - 1, edge + 1)),
    st.sampled_from((8 * DAY, 8 * DAY + 1, 9 * DAY + 1, 90 * DAY, 90 * DAY + 1, 100 * DAY)),
)
_LAGS = st.one_of(
    st.just(0),
    st.integers(-5 * MINUTE, 2 * SECOND),
    st.sampled_from((MINUTE, HOUR, DAY, 7 * DAY - 1, 7 * DAY)),
    st.integers(0, 7 * DAY),
)
_UNITS = st.one_of(st.sampled_from((0, 1, 100_000, 250_000, 1_000_000, 10**13)), st.integers(0, 5_000_000))
_CARDS = ("a", "b", "c")


@st.composite
def histories(draw: st.DrawFn, most: int = 40) -> History:
    """Histories of up to `most` transactions of three cards, and profile changes; arrivals never go back."""
    history, clock = History(), 0
    with_profile = set()
    for card in draw(st.sets(st.sampled_from(_CARDS))):
        history.profile("r", 0, card, credit_limit=500.0, risk_tier=1)
        with_profile.add(card)
    # bursts: the pause before each, and its number of events, with short pauses between
    events = draw(st.lists(st.tuples(_PAUSES, st.integers(1, 6)), min_size=1, max_size=most // 2))
    for pause, burst in events:
        clock += pause
        for _ in range(burst):
            if len(history.transactions) == most:
                return history
            clock += draw(st.sampled_from((0, 0, 1, SECOND)))
            card = draw(st.sampled_from(_CARDS))
            kind = draw(st.integers(0, 9))
            if kind == 0:
                # a snapshot row (`r`) that is a card's first version counts from the beginning of the log:
                # the oracle would apply it also to transactions that the kernels decided in an earlier batch.
                # So `r` is drawn only for cards that have a version
                ops = ("c", "u", "d", "tombstone") + ("r",) * (card in with_profile)
                history.profile(
                    draw(st.sampled_from(ops)), clock, card,
                    home_country=draw(st.sampled_from(("FR", "DE", "ZZ"))),
                    credit_limit=draw(st.sampled_from((0.0, 12.5, 2000.0))),
                    risk_tier=draw(st.integers(0, 3)),
                    opened_on=draw(st.integers(-100, 25_000)),
                    status=draw(st.sampled_from(STATUSES)),
                )  # fmt: skip
                with_profile.add(card)
                continue
            known = history.transactions if kind <= 2 else []
            timely = [tx for tx in known if START + clock - tx.event_time <= 7 * DAY]
            if kind == 1 and timely:  # a repetition, on the same card or another
                history.again(draw(st.sampled_from(timely)), clock, card_id=card)
                continue
            history.tx(
                clock - draw(_LAGS), draw(_UNITS), arrival=clock, card=card,
                merchant=draw(st.sampled_from(("m", "n", "o"))),
                country=draw(st.sampled_from(("FR", "DE", "US", "QQ", "ZZ"))),
                transaction_id=draw(st.sampled_from(known)).transaction_id if known else None,
            )  # fmt: skip
    if not history.transactions:
        history.tx(clock)
    return history


@st.composite
def strangers(draw: st.DrawFn) -> History:
    """Histories of eight cards with few transactions each, some with profiles; arrivals never go back."""
    history, clock = History(), 0
    pauses = st.sampled_from(
        (0, 1, DAY - 1, DAY, DAY + 1, 4 * DAY, 8 * DAY - 1, 8 * DAY, 8 * DAY + 1, 9 * DAY + 1)
    )
    cards = st.sampled_from("abcdefgh")
    events = st.tuples(pauses, cards, st.sampled_from(("tx", "tx", "tx", "c", "r", "d", "tombstone")))
    with_profile = set()
    for pause, card, kind in draw(st.lists(events, min_size=2, max_size=40)):
        clock += pause
        if kind == "tx":
            lag = draw(st.sampled_from((0, 0, HOUR, 7 * DAY, -5 * MINUTE)))
            history.tx(clock - lag, draw(st.sampled_from((10_000, 2_000_000))), arrival=clock, card=card)
        elif kind != "r" or card in with_profile:  # see `histories`
            history.profile(kind, clock, card)
            with_profile.add(card)
    if not history.transactions:
        history.tx(clock)
    return history

"""Read-only view of one card in a key group's persisted state, without rebuilding the other cards."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import HOUR_MS, WINDOWS
from feature_store.kernels.hot import BITS, BUCKETS_PER_CARD, BUCKETS_PER_WINDOW, WIDTHS
from feature_store.layout import (
    ALERT_HOURS,
    BEGINNING,
    COMPACTED,
    COUNTRY_MASK,
    COUNTRY_SHIFT,
    CURRENCY_BITS,
    DELETE,
    EMPTY,
    MERCHANT_MASK,
    RING,
    SPIKE,
    STATUS_ONLY,
    STATUSES,
    UNITS_PER_CURRENCY,
    WHEN_SHIFT,
    country_name,
)
from feature_store.state.arena import MemoryArena
from feature_store.state.deltas import Delta
from feature_store.state.group_state import DEFAULT_LATENESS_MS, GroupState
from feature_store.state.journal import Meta
from feature_store.state.piece_records import CARDS_PER_PIECE
from feature_store.state.pieces import decode_piece, read_piece

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class CardState:
    """A partial state in which only one card is complete."""

    state: GroupState
    number: int
    """Card number; the other cards of the state are incomplete."""


def find_card(
    pieces: Iterable[tuple[str, bytes]], lo: int, hi: int, lateness_ms: int = DEFAULT_LATENESS_MS
) -> CardState | None:
    """Load a card's state from the persisted pieces of its key group; None if they do not contain it.

    Holds in memory all deltas, but of the snapshot pieces only those that contain the card.

    Args:
        pieces: all pieces of the group as (name, blob), in any order.
        lo: low half of the card's hash.
    """
    meta = Meta()
    snapshots: dict[int, bytes] = {}
    deltas: dict[int, Delta] = {}
    numbers: dict[int, int] = {}  # card number by snapshot piece
    for name, blob in pieces:
        if name == "meta":
            meta = Meta.decode(blob)
        elif not name[1:].isdecimal():
            continue  # it has no cards, as the piece of the schemas
        elif name.startswith("d"):
            deltas[int(name[1:])] = Delta.decode(blob, f"delta {name[1:]}")
        elif name.startswith("s"):
            piece = int(name[1:])
            cards = decode_piece(blob, f"snapshot {piece}").cards
            rows = np.flatnonzero((cards["lo"] == lo) & (cards["hi"] == hi))
            if rows.size:
                snapshots[piece], numbers[piece] = blob, piece * CARDS_PER_PIECE + int(rows[0])
    # a card that was evicted and added again may be found under two numbers; the one written last is valid
    candidates = [(meta.pieces[piece], number) for piece, number in numbers.items()]
    for sequence, delta in deltas.items():
        rows = np.flatnonzero((delta.added["lo"] == lo) & (delta.added["hi"] == hi))
        if rows.size:
            candidates.append((sequence, int(delta.added["number"][rows[0]])))
    if not candidates:
        return None
    _, number = max(candidates)
    piece = number // CARDS_PER_PIECE
    state = GroupState(MemoryArena(), lateness_ms)
    if meta.pieces[piece] and piece in snapshots:
        read_piece(state, piece, snapshots[piece])
    state.prepare_replay(meta.cards)
    versions = np.full(len(meta.pieces), _NEVER)
    versions[piece] = meta.pieces[piece]
    for sequence in sorted(deltas):
        deltas[sequence].replay(state, versions, sequence)
    card = state.arena.arrays["cards"][number]
    return CardState(state, number) if (card["lo"], card["hi"]) == (lo, hi) else None


def describe(card_state: CardState) -> dict[str, object]:
    """Describe a card's state as JSON values; times in ms, amounts in currency units.

    The windows end at the card's latest event time; those of a hot card are counted in buckets, so they are
    less precise (see `kernels.hot`).
    """
    arrays = card_state.state.arena.arrays
    card = arrays["cards"][card_state.number]
    events = arrays["events"][max(int(card["segment"]), 0) :][: int(card["events"])]
    times = events["when"] >> WHEN_SHIFT
    seen, hot = int(card["seen"]), int(card["hot"]) != EMPTY
    return {
        "transactions": seen,
        "last_event_time": int(card["max_time"]) if seen else None,
        "last_arrival_time": int(card["last_arrival"]) if seen else None,
        "hot": hot,
        "kept_events": {
            "count": len(events),
            "oldest_event_time": int(times[0]) if len(events) else None,
            "newest_event_time": int(times[-1]) if len(events) else None,
            "spikes": int((events["when"] & SPIKE).sum()),
        },
        "windows": (_ring_windows(arrays["buckets"], card) if hot else _windows(events, card))
        if seen
        else {},
        "running": {
            "mean_amount": float(card["mean"]) if seen else None,
            "deviation": float(np.sqrt(card["m2"] / seen)) if seen else None,
            "robust_mean": float(card["robust_mean"]) if seen else None,
        },
        "profiles": _profiles(arrays["profiles"], int(card["profile"])),
        "suspicious_count": _suspicious(arrays["alert_hours"], card),
    }


def _windows(events: NDArray[np.void], card: np.void) -> dict[str, dict[str, float]]:
    windows = {}
    for name, length in WINDOWS.items():
        inside = events[(events["when"] >> WHEN_SHIFT) > card["max_time"] - length]
        amounts = inside["money"] >> CURRENCY_BITS
        countries = (inside["when"] >> COUNTRY_SHIFT) & COUNTRY_MASK
        windows[name] = {
            "count": len(inside),
            "sum": int(amounts.sum()) / UNITS_PER_CURRENCY,
            "max": int(amounts.max(initial=0)) / UNITS_PER_CURRENCY,
            "merchants": len(np.unique(inside["merchant"] & np.uint64(MERCHANT_MASK))),
            "countries": len(np.unique(countries)),
        }
    return windows


def _ring_windows(buckets: NDArray[np.void], card: np.void) -> dict[str, dict[str, float]]:
    first = int(card["hot"]) * BUCKETS_PER_CARD
    windows = {}
    for number, name in enumerate(WINDOWS):
        ring = buckets[first + number * RING : first + (number + 1) * RING]
        newest = int(card["max_time"]) // int(WIDTHS[number])
        inside = ring[(ring["index"] > newest - BUCKETS_PER_WINDOW) & (ring["index"] <= newest)]
        # linear counting, see `kernels.hot`
        empty = BITS - _bits(inside["merchants"])
        windows[name] = {
            "count": int(inside["count"].sum()),
            "sum": int(inside["total"].sum()) / UNITS_PER_CURRENCY,
            "max": int(inside["greatest"].max(initial=0)) / UNITS_PER_CURRENCY,
            "merchants": round(-BITS * float(np.log(max(empty, 1) / BITS))),
            "countries": _bits(inside["countries"]),
        }
    return windows


def _bits(sets: NDArray[np.uint64]) -> int:
    return sum(int(word).bit_count() for word in np.bitwise_or.reduce(sets, axis=0))


def _profiles(profiles: NDArray[np.void], newest: int) -> list[dict[str, object]]:
    """List the profile versions, newest first."""
    versions: list[dict[str, object]] = []
    while newest != EMPTY:
        version = profiles[newest]
        known_from = None if version["arrival"] == BEGINNING else int(version["arrival"])
        if version["change"] == COMPACTED:
            versions.append({"known_from": known_from, "compacted": True})
        elif version["change"] >= STATUS_ONLY:
            status, deleted = STATUSES[int(version["status"])], bool(version["change"] >= DELETE)
            versions.append({"known_from": known_from, "deleted": deleted, "status": status})
        else:
            versions.append(
                {
                    "known_from": known_from,
                    "status": STATUSES[int(version["status"])],
                    "home_country": country_name(int(version["country"])),
                    "credit_limit": float(version["credit_limit"]),
                    "risk_tier": int(version["risk_tier"]),
                    "opened_on": str(np.datetime64(int(version["opened_on"]), "D")),
                }
            )
        newest = int(version["older"])
    return versions


def _suspicious(hours: NDArray[np.void], card: np.void) -> dict[str, int]:
    """Count the alerts in the 24 clock hours up to the last arrival, and in total."""
    total = int(card["alerts"])
    if total == 0 or int(card["alert_hours"]) == EMPTY:
        return {"day": 0, "total": total}
    record = hours[int(card["alert_hours"])]
    assert record.dtype == ALERT_HOURS
    newest = int(record["hour"])
    oldest = int(card["last_arrival"]) // HOUR_MS - 23
    day = sum(int(record["counts"][hour % 24]) for hour in range(max(oldest, newest - 23), newest + 1))
    return {"day": day, "total": total}

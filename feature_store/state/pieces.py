"""Snapshot pieces: the whole state of a range of card numbers as one blob."""

import numpy as np

from feature_store.layout import ALERT_HOURS, BUCKET, CARD, EVENT, HOT, PROFILE
from feature_store.state import event_columns
from feature_store.state.codec import StateDamagedError, decode, encode, records
from feature_store.state.group_state import GroupState
from feature_store.state.piece_records import (
    PieceRecords,
    first_number,
    gather,
    has_record,
    insert,
    is_used,
)


def write_piece(state: GroupState, piece: int, after: bytes = b"") -> bytes:
    """Encode a piece's cards with their events, profile versions, alert counts and hot records as a blob.

    Args:
        after: digest of the last delta that the state includes.
    """
    contents = gather(state, piece)
    cards, events = contents.cards, contents.events
    # last arrival and event times are stored relative to max_time, the card's greatest accepted event time
    return encode(
        {
            **{f"cards.{name}": cards[name] for name in _CARD_FIELDS if name != "last_arrival"},
            "ahead": cards["last_arrival"] - cards["max_time"],
            **event_columns.split(cards, events, state.lateness_ms, all_ids=state.keeps_ids),
            # version_counts assigns the versions to cards
            **{f"profiles.{name}": contents.profiles[name].reshape(-1) for name in _PROFILE_FIELDS},
            "version_counts": contents.version_counts,
            "alert_hours": contents.alert_hours,
            "hots": contents.hots,
            "buckets": contents.buckets,
            "latest": contents.latest,
            "after": np.frombuffer(after, dtype=np.uint8),
        }
    )


_CARD_FIELDS = tuple(name for name in CARD.names or () if name not in ("segment", "size_class"))
_PROFILE_FIELDS = tuple(name for name in PROFILE.names or () if name not in ("lo", "hi", "older"))


def decode_piece(blob: bytes, piece_name: str) -> PieceRecords:
    """Decode a blob of `write_piece`.

    Raises:
        StateDamagedError: the blob cannot be trusted.
    """
    raw = decode(blob, piece_name)
    cards = records(raw, "cards", CARD)
    cards["last_arrival"] = raw["ahead"] + cards["max_time"]
    profiles = records(raw, "profiles", PROFILE)
    for name in ("lo", "hi"):
        profiles[name] = np.repeat(cards[name], raw["version_counts"])
    contents = PieceRecords(
        cards,
        event_columns.join(cards, raw, piece_name),
        profiles,
        raw["version_counts"].astype(np.uint32),
        records(raw, "alert_hours", ALERT_HOURS),
        records(raw, "hots", HOT),
        records(raw, "buckets", BUCKET),
        records(raw, "latest", EVENT),
        raw["after"].astype(np.uint8),
    )
    _require_used_numbers(contents, piece_name)
    return contents


def _require_used_numbers(contents: PieceRecords, piece_name: str) -> None:
    """Refuse a piece in which an unused card number has records: the cards behind it would get wrong records.

    Releases before 2026-11-24 wrote such pieces if the state was rebuilt after cards had been evicted.
    """
    cards = contents.cards
    if (
        contents.version_counts[~is_used(cards)].any()
        or contents.alert_hours.size != has_record(cards, "alert_hours").sum()
        or contents.hots.size != has_record(cards, "hot").sum()
    ):
        raise StateDamagedError(
            f"state piece {piece_name} has records of an unused card number; replay the log"
        )


def read_piece(state: GroupState, piece: int, blob: bytes) -> bytes:
    """Load a piece's cards into a state that is being rebuilt; the caller rebuilds the index afterwards.

    Returns:
        Digest of the delta after which the piece was written.
    """
    contents = decode_piece(blob, f"snapshot {piece}")
    insert(state, first_number(piece), contents)
    return contents.after.tobytes()

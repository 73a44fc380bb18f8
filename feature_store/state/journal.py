"""Persistence of a key group's state: deltas of its input, and snapshots of ranges of cards in turn.

Everything persisted goes through a `PieceStore`, a map of names to blobs that the caller commits atomically
(changes need only its half `PieceSink`, so they can be kept for a store of another thread):

    meta     sequence numbers of the other blobs, and the token of the state that they form
    d<seq>   delta number seq
    s<piece> snapshot of a range of cards, as of the seq that meta names

Nothing rewrites the whole state. `append` writes a delta, the snapshots that are due (MOST_DELTAS), and more
while the credit lasts that deltas earn by their size; `seal` ends an epoch. A delta is removed when every
range has a snapshot that includes it. To rebuild, load the snapshots, then replay the deltas in order, each
only for the cards whose snapshot is older.

Every delta stores the digest of the previous delta, every snapshot that of the delta after which it was
written, and meta that of the last delta. So pieces of two different histories of the state are never
combined.
"""

import hashlib
import secrets
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import orjson

from feature_store.state.codec import StateDamagedError, decode, encode
from feature_store.state.deltas import Delta
from feature_store.state.group_state import GroupState
from feature_store.state.piece_records import CARDS_PER_PIECE
from feature_store.state.pieces import read_piece, write_piece

SNAPSHOT_BYTES_PER_DELTA_BYTE = 6
"""Bytes of snapshots per byte of delta, up to the limit below. Without the limit, by the time that the
deltas reach a sixth of all snapshots' size, each snapshot has been renewed, so older deltas are removed."""
SNAPSHOT_BYTES_PER_APPEND = 64 << 10
"""Limit of the snapshot bytes that an append earns: the larger of this and half the bytes of the delta. There
is a limit because alerts wait while snapshots are written. If large deltas pile up, snapshots catch up once
deltas are small again."""
MOST_DELTAS = 1_000
"""Every range of cards gets a new snapshot within this number of deltas, so that a rebuild never replays many
more, even in a quiet group, whose small deltas earn few snapshots."""


class PieceSink(Protocol):
    """Takes the changes of a map of blobs, which become durable together, or not at all."""

    def put(self, name: str, blob: bytes) -> None:
        """Set or replace a blob."""

    def remove(self, name: str) -> None:
        """Remove a blob that exists."""


class PieceStore(PieceSink, Protocol):
    """A persistent map of blobs."""

    def get(self, name: str) -> bytes | None:
        """Return the blob of that name, or None."""


class MemoryPieces(dict[str, bytes]):
    """A `PieceStore` in memory."""

    def put(self, name: str, blob: bytes) -> None:
        """See `PieceStore.put`."""
        self[name] = blob

    def remove(self, name: str) -> None:
        """See `PieceStore.remove`."""
        del self[name]


@dataclass
class Meta:
    """Sequence numbers and digests of a group's persisted pieces."""

    token: str = ""
    """Identifies the state after the last epoch; a working copy with another token is out of date."""
    sequence: int = 0
    """Number of the last delta."""
    head: str = ""
    """Digest of the last delta, hexadecimal; empty if there is none."""
    oldest: int = 1
    """Number of the oldest delta kept."""
    cards: int = 0
    """How many card numbers (indices of the group's cards, from 0) were assigned, to evicted cards too."""
    credit: int = 0
    """Snapshot bytes that may still be written; below 0 if the last snapshot took more than was left."""
    next_piece: int = 0
    """Number of the piece to snapshot next."""
    pieces: list[int] = field(default_factory=list)
    """Sequence number of the delta after which each piece's snapshot was written; 0: no snapshot."""
    extra: dict[str, Any] = field(default_factory=dict)
    """JSON values that the caller stores with the cards."""

    def encode(self) -> bytes:
        """Encode as a blob."""
        return encode({"json": np.frombuffer(orjson.dumps(self.__dict__), dtype=np.uint8)})

    @staticmethod
    def decode(blob: bytes) -> "Meta":
        """Decode a blob of `encode`."""
        return Meta(**orjson.loads(decode(blob, "meta")["json"].tobytes()))


def load_meta(store: PieceStore) -> Meta:
    """Load the meta of a group; a new one if there is none yet."""
    blob = store.get("meta")
    return Meta.decode(blob) if blob else Meta()


def append(store: PieceSink, meta: Meta, state: GroupState, delta: Delta) -> None:
    """Evict some forgotten cards; write a delta, and the snapshots that are due or that the credit allows.

    Args:
        meta: updated; `seal` writes it.
        state: already includes the delta.
        delta: the input since the last delta, without what is set here.
    """
    meta.sequence += 1
    added = state.take_added()
    previous = np.frombuffer(bytes.fromhex(meta.head), dtype=np.uint8)
    delta = replace(
        delta,
        added=added,
        evicted=state.sweep(added.size),
        after=previous,
        lateness_ms=state.lateness_ms,
    )
    blob = delta.encode()
    head = _digest(blob)
    meta.head = head.hex()
    store.put(f"d{meta.sequence}", blob)
    meta.cards = state.numbers_given
    meta.pieces += [0] * (-(-meta.cards // CARDS_PER_PIECE) - len(meta.pieces))
    earned = SNAPSHOT_BYTES_PER_DELTA_BYTE * len(blob)
    meta.credit += min(earned, max(SNAPSHOT_BYTES_PER_APPEND, len(blob) // 2))
    # spread evenly: this many pieces are due now, so that each is written within MOST_DELTAS deltas
    due = (
        meta.sequence * len(meta.pieces) // MOST_DELTAS
        - (meta.sequence - 1) * len(meta.pieces) // MOST_DELTAS
    )
    while meta.pieces and (meta.credit > 0 or due > 0):
        piece = meta.next_piece % len(meta.pieces)
        if meta.pieces[piece] == meta.sequence:
            meta.credit = 0
            break
        snapshot = write_piece(state, piece, head)
        store.put(f"s{piece}", snapshot)
        meta.pieces[piece] = meta.sequence
        meta.next_piece = piece + 1
        meta.credit -= len(snapshot)
        due -= 1
    while meta.oldest <= min(meta.pieces, default=0):
        store.remove(f"d{meta.oldest}")
        meta.oldest += 1


def seal(store: PieceSink, meta: Meta) -> None:
    """End an epoch: write `meta` with a new token that identifies the current state."""
    meta.token = secrets.token_hex(8)
    store.put("meta", meta.encode())


def write_whole(store: PieceSink, meta: Meta, state: GroupState) -> None:
    """Write a state as the beginning of a history of its own; `seal` writes `meta`.

    Args:
        store: has no pieces of a state yet.
        meta: new; updated.
    """
    head = secrets.token_bytes(8)  # stands for a first delta, which is in all pieces
    meta.sequence, meta.oldest, meta.head = 1, 2, head.hex()
    meta.cards = state.numbers_given
    meta.pieces = [1] * -(-meta.cards // CARDS_PER_PIECE)
    for piece in range(len(meta.pieces)):
        store.put(f"s{piece}", write_piece(state, piece, head))


def rebuild(store: PieceStore, meta: Meta, state: GroupState) -> None:
    """Rebuild `state` as of `meta` from the persisted pieces.

    Raises:
        StateDamagedError: a piece is missing or damaged, or belongs to another history than the others.
    """
    state.clear()
    lineage = _Lineage()
    for piece, sequence in enumerate(meta.pieces):
        if sequence:
            lineage.require(sequence, read_piece(state, piece, _existing(store, f"s{piece}")), f"s{piece}")
    versions = np.array(meta.pieces, dtype=np.int64)
    state.prepare_replay(meta.cards)
    for sequence in range(meta.oldest, meta.sequence + 1):
        blob = _existing(store, f"d{sequence}")
        delta = Delta.decode(blob, f"delta {sequence}")
        # checked before the replay: in another history the same card numbers belong to other cards
        lineage.require(sequence - 1, delta.after.tobytes(), f"d{sequence}")
        lineage.require(sequence, _digest(blob), f"d{sequence}")
        delta.replay(state, versions, sequence)
    lineage.require(meta.sequence, bytes.fromhex(meta.head), "meta")
    state.end_replay()


class _Lineage:
    """Digests of deltas by sequence number, to check that pieces and deltas belong to one history."""

    def __init__(self) -> None:
        self._digests = {0: b""}

    def require(self, sequence: int, digest: bytes, name: str) -> None:
        """Require that a blob names the same digest for the delta `sequence` as earlier blobs.

        Raises:
            StateDamagedError: the digests differ.
        """
        if self._digests.setdefault(sequence, digest) != digest:
            raise StateDamagedError(
                f"state piece {name} is of another history than the pieces beside it (delta {sequence} is "
                "not the same); restore the checkpoint or replay the log"
            )


def _digest(blob: bytes) -> bytes:
    return hashlib.blake2b(blob, digest_size=8).digest()


def _existing(store: PieceStore, name: str) -> bytes:
    blob = store.get(name)
    if blob is None:
        raise StateDamagedError(f"state piece {name} is missing; restore the checkpoint or replay the log")
    return blob

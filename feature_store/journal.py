"""How a key group's state survives: deltas of its input, and snapshot pieces written now and then.

Everything persisted goes through a `PieceStore`, a map of names to blobs that the caller commits atomically:

    meta     where the others stand, and the token of the state that they add up to
    d<seq>   delta number seq
    s<piece> snapshot of a range of cards, as of the seq that meta names

Nothing rewrites the whole state: `append` writes a delta, and snapshots of as many pieces as the delta has
earned by its bytes; `seal` ends an epoch. A delta goes when every piece is newer. To rebuild: load the
pieces, then replay the deltas in order, each only for the cards whose piece is older.

Every delta holds the digest of the one before, every piece that of the delta it was written after, and meta
that of the last one: what belongs to two histories of the state is not put together.
"""

import hashlib
import secrets
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import orjson

from feature_store.codec import StateDamagedError, decode, encode
from feature_store.deltas import Delta
from feature_store.group_state import GroupState
from feature_store.pieces import CARDS_PER_PIECE, read_piece, write_piece

SNAPSHOT_BYTES_PER_DELTA_BYTE = 6
"""Write amplification of snapshots; the deltas kept then are a sixth of the snapshots."""
SNAPSHOT_BYTES_PER_APPEND = 64 << 10
"""Where that is more, half as many bytes of snapshots are written as of delta, or this if the delta is small:
a piece or two. Alerts wait meanwhile, and deltas that pile up are folded in once they are small again."""
MOST_DELTAS = 1_000
"""Each piece has its turn within so many deltas, whatever it costs: quiet groups recover fast too."""


class PieceStore(Protocol):
    """A persistent map of blobs; its changes become durable together, or not at all."""

    def get(self, name: str) -> bytes | None:
        """The blob of that name, or None."""

    def put(self, name: str, blob: bytes) -> None:
        """Set or replace a blob."""

    def remove(self, name: str) -> None:
        """Remove a blob that exists."""


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
    """Where a group's pieces stand."""

    token: str = ""
    """Names the state after the last epoch; a working copy with another token is not that state."""
    sequence: int = 0
    """Number of the last delta."""
    head: str = ""
    """Digest of the last delta, hexadecimal; empty if there is none."""
    oldest: int = 1
    """Number of the oldest delta kept."""
    cards: int = 0
    """Card numbers of the group, those of evicted cards included."""
    credit: int = 0
    """Snapshot bytes earned and not yet written."""
    next_piece: int = 0
    """The piece to snapshot next."""
    pieces: list[int] = field(default_factory=list)
    """Sequence number that each piece's snapshot is as of; 0: none."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What the caller keeps beside the cards, as JSON."""

    def encode(self) -> bytes:
        """As bytes."""
        return encode({"json": np.frombuffer(orjson.dumps(self.__dict__), dtype=np.uint8)})

    @staticmethod
    def decode(blob: bytes) -> "Meta":
        """Inverse of `encode`.

        Raises:
            StateDamagedError: the blob cannot be trusted, or is newer than this program.
        """
        return Meta(**orjson.loads(decode(blob, "meta")["json"].tobytes()))


def load_meta(store: PieceStore) -> Meta:
    """Meta of a group, fresh where there is none yet."""
    blob = store.get("meta")
    return Meta.decode(blob) if blob else Meta()


def append(store: PieceStore, meta: Meta, state: GroupState, delta: Delta) -> int:
    """Evict some of the idle cards and write what happened since the last delta.

    Args:
        store: where the pieces are kept.
        meta: altered; `seal` writes it.
        state: after everything in the delta.
        delta: the input since the last one, without `added` and `evicted`.

    Returns:
        Bytes written.
    """
    meta.sequence += 1
    added = state.take_added()
    before = np.frombuffer(bytes.fromhex(meta.head), dtype=np.uint8)
    delta = replace(delta, added=added, evicted=state.sweep(added.size), after=before)
    blob = delta.encode()
    head = _digest(blob)
    meta.head = head.hex()
    store.put(f"d{meta.sequence}", blob)
    written = len(blob)
    meta.cards = state.numbers_given
    meta.pieces += [0] * (-(-meta.cards // CARDS_PER_PIECE) - len(meta.pieces))
    earned = SNAPSHOT_BYTES_PER_DELTA_BYTE * len(blob)
    meta.credit += min(earned, max(SNAPSHOT_BYTES_PER_APPEND, len(blob) // 2))
    # evenly: as many turns as bring every piece round in time
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
        written += len(snapshot)
        due -= 1
    while meta.oldest <= min(meta.pieces, default=0):
        store.remove(f"d{meta.oldest}")
        meta.oldest += 1
    return written


def seal(store: PieceStore, meta: Meta) -> None:
    """End an epoch: write `meta` with a new token, which names the state as it is now."""
    meta.token = secrets.token_hex(8)
    store.put("meta", meta.encode())


def rebuild(store: PieceStore, meta: Meta, state: GroupState) -> None:
    """Make `state` what `meta` names, from the persisted pieces.

    Raises:
        StateDamagedError: a piece is missing or damaged, or of another history than the others.
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
        # before it is replayed: it speaks of cards by numbers, which are other cards' in another history
        lineage.require(sequence - 1, delta.after.tobytes(), f"d{sequence}")
        lineage.require(sequence, _digest(blob), f"d{sequence}")
        delta.replay(state, versions, sequence)
    lineage.require(meta.sequence, bytes.fromhex(meta.head), "meta")
    state.end_replay()


class _Lineage:
    """The one history that pieces and deltas must be of: digests of deltas by their numbers."""

    def __init__(self) -> None:
        self._known = {0: b""}

    def require(self, sequence: int, digest: bytes, name: str) -> None:
        """See that what one blob says of a delta is what the others say.

        Raises:
            StateDamagedError: it is not.
        """
        if self._known.setdefault(sequence, digest) != digest:
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

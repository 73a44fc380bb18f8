"""Deltas: the inputs of a key group since the previous delta, for replay.

State is a deterministic function of its inputs. So a delta stores the accepted inputs, which of them became
alerts, which alerts were suppressed, and which cards were added and evicted; replaying it through the same
kernels gives the same state. It stores card numbers, so that it can be replayed for some cards only.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from feature_store.layout import MERCHANT_MASK, PROFILE, TRANSACTION, TRANSACTION_MASK
from feature_store.state.codec import decode, encode, records
from feature_store.state.group_arrays import IDENTITY
from feature_store.state.group_state import GroupState
from feature_store.state.piece_records import CARDS_PER_PIECE


@dataclass(frozen=True)
class Delta:
    """Inputs of a key group since the previous delta."""

    changes: NDArray[np.void]
    """Profile changes in offset order (PROFILE), shape (c,)."""
    change_cards: NDArray[np.int32]
    """Card number of each change, shape (c,)."""
    transactions: NDArray[np.void]
    """Accepted transactions in log order (TRANSACTION), shape (n,)."""
    cards: NDArray[np.int32]
    """Card number of each transaction, shape (n,)."""
    alerted: NDArray[np.bool_]
    """Whether each transaction became an alert, shape (n,)."""
    suppressed: NDArray[np.bool_] | None = None
    """Whether a cooldown suppressed the alert of each transaction, shape (n,); None if it suppressed none."""
    added: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, dtype=IDENTITY))
    """Cards that are new in this delta (IDENTITY); a replay adds them first. Set by `journal.append`."""
    evicted: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Numbers of the evicted cards; a replay evicts them last. Set by `journal.append`."""
    after: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    """Digest of the previous delta, empty if there is none; set by `journal.append`."""
    lateness_ms: int = field(default=0, kw_only=True)
    """Allowed lateness with which the state included the delta: a replay forgets and drops the same, though
    the setting may have changed since. Set by `journal.append`."""

    def encode(self) -> bytes:
        """Encode the delta as a blob, without the fields that a replay does not need."""
        transactions = self.transactions
        suppressed = self.suppressed
        return encode(
            {
                **{f"changes.{name}": self.changes[name].reshape(-1) for name in _CHANGE_FIELDS},
                "change_cards": self.change_cards,
                "cards": self.cards,
                "alerted": np.packbits(self.alerted),
                **(
                    {"suppressed": np.packbits(suppressed)}
                    if suppressed is not None and suppressed.any()
                    else {}
                ),
                # small numbers compress well: arrivals rise within a partition, and most events are recent
                "arrivals": np.diff(transactions["arrival"], prepend=0),
                "ages": transactions["arrival"] - transactions["time"],
                "amounts": transactions["amount"],
                "transactions": transactions["transaction"] & np.uint64(TRANSACTION_MASK),
                "merchants": transactions["merchant"] & np.uint64(MERCHANT_MASK),
                "countries": transactions["country"],
                "currencies": transactions["currency"],
                "partitions": transactions["partition"],
                "added": self.added,
                "evicted": self.evicted,
                "after": self.after,
                "lateness_ms": np.array([self.lateness_ms]),
            }
        )

    @staticmethod
    def decode(blob: bytes, piece_name: str) -> "Delta":
        """Decode a delta; hashes have only the bits that are compared."""
        raw = decode(blob, piece_name)
        cards, change_cards = raw["cards"].astype(np.int32), raw["change_cards"].astype(np.int32)
        alerted = _bits(raw["alerted"], cards.size)
        suppressed = _bits(raw["suppressed"], cards.size) if "suppressed" in raw else None
        transactions = np.zeros(cards.size, dtype=TRANSACTION)
        transactions["arrival"] = np.cumsum(raw["arrivals"])
        transactions["time"] = transactions["arrival"] - raw["ages"]
        transactions["amount"] = raw["amounts"]
        transactions["transaction"] = raw["transactions"]
        transactions["merchant"] = raw["merchants"]
        transactions["country"] = raw["countries"]
        transactions["currency"] = raw["currencies"]
        transactions["partition"] = raw["partitions"]
        return Delta(
            records(raw, "changes", PROFILE),
            change_cards,
            transactions,
            cards,
            alerted,
            suppressed,
            records(raw, "added", IDENTITY),
            raw["evicted"].astype(np.int32),
            raw["after"].astype(np.uint8),
            lateness_ms=int(raw["lateness_ms"][0]),
        )

    def replay(self, state: GroupState, piece_versions: NDArray[np.int64], sequence: int) -> None:
        """Apply the delta to `state`, for the cards whose snapshot is older than this delta."""

        def is_stale(numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
            stale: NDArray[np.bool_] = piece_versions[numbers // CARDS_PER_PIECE] < sequence
            return stale

        lateness_ms, state.lateness_ms = state.lateness_ms, self.lateness_ms
        state.adopt(self.added[is_stale(self.added["number"])])
        rows = is_stale(self.change_cards)
        state.change_profiles(
            state.with_identity(self.changes[rows], self.change_cards[rows]), self.change_cards[rows]
        )
        rows = is_stale(self.cards)
        transactions, cards = self.transactions[rows], self.cards[rows]
        applied = state.apply(transactions, cards)
        suppressed = None if self.suppressed is None else self.suppressed[rows]
        state.count_alerts(cards, transactions["arrival"], self.alerted[rows], applied.restarted, suppressed)
        state.evict(self.evicted[is_stale(self.evicted)])
        state.lateness_ms = lateness_ms


def _bits(packed: NDArray[np.generic], count: int) -> NDArray[np.bool_]:
    return np.unpackbits(packed.view(np.uint8), count=count).astype(np.bool_)


_CHANGE_FIELDS = tuple(name for name in PROFILE.names or () if name not in ("lo", "hi", "older"))

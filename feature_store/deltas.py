"""Deltas: what some time did to a key group, as the calls that did it.

State is a deterministic function of its inputs, so a delta is the accepted input, which of it became alerts,
and which cards came and went; replaying it through the same kernels gives the same state. Card numbers stand
in the delta, so that it can be replayed for some cards only.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from feature_store.codec import decode, encode, records
from feature_store.group_state import IDENTITY, GroupState
from feature_store.layout import MERCHANT_MASK, PROFILE, TRANSACTION, TRANSACTION_MASK
from feature_store.pieces import CARDS_PER_PIECE


@dataclass(frozen=True)
class Delta:
    """What happened to a key group since the delta before."""

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
    """Which alerts a cooldown held back, shape (n,); None: none."""
    added: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, dtype=IDENTITY))
    """Cards met for the first time, before anything else (IDENTITY); `append` fills it in."""
    evicted: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Numbers of the cards that were evicted after everything else; `append` fills it in."""
    after: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    """Digest of the delta before this one, empty if there is none; `append` fills it in."""

    def encode(self) -> bytes:
        """The delta as a blob, without what a replay does not look at."""
        sent = self.transactions
        held = self.suppressed
        return encode(
            {
                **{f"changes.{name}": self.changes[name].reshape(-1) for name in _OF_CHANGE},
                "change_cards": self.change_cards,
                "cards": self.cards,
                "alerted": np.packbits(self.alerted),
                **({} if held is None or not held.any() else {"suppressed": np.packbits(held)}),
                # by partition arrivals go up, and most events are young
                "arrivals": np.diff(sent["arrival"], prepend=0),
                "ages": sent["arrival"] - sent["time"],
                "amounts": sent["amount"],
                "transactions": sent["transaction"] & np.uint64(TRANSACTION_MASK),
                "merchants": sent["merchant"] & np.uint64(MERCHANT_MASK),
                "countries": sent["country"],
                "partitions": sent["partition"],
                "added": self.added,
                "evicted": self.evicted,
                "after": self.after,
            }
        )

    @staticmethod
    def decode(blob: bytes, what: str) -> "Delta":
        """Inverse of `encode`; of hashes the bits that count.

        Raises:
            StateDamagedError: the blob cannot be trusted.
        """
        raw = decode(blob, what)
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
        )

    def replay(self, state: GroupState, piece_versions: NDArray[np.int64], sequence: int) -> None:
        """Do to `state` what happened, for the cards whose snapshot is older than this delta."""

        def wanted(numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
            missing: NDArray[np.bool_] = piece_versions[numbers // CARDS_PER_PIECE] < sequence
            return missing

        state.adopt(self.added[wanted(self.added["number"])])
        mine = wanted(self.change_cards)
        state.change_profiles(
            state.with_identity(self.changes[mine], self.change_cards[mine]), self.change_cards[mine]
        )
        mine = wanted(self.cards)
        transactions, cards = self.transactions[mine], self.cards[mine]
        applied = state.apply(transactions, cards)
        suppressed = None if self.suppressed is None else self.suppressed[mine]
        state.count_alerts(cards, transactions["arrival"], self.alerted[mine], applied.restarted, suppressed)
        state.evict(self.evicted[wanted(self.evicted)])


def _bits(packed: NDArray[np.generic], count: int) -> NDArray[np.bool_]:
    return np.unpackbits(packed.view(np.uint8), count=count).astype(np.bool_)


_OF_CHANGE = tuple(name for name in PROFILE.names or () if name not in ("lo", "hi", "older"))

"""Deltas: what one batch did to a key group, as the calls that did it.

State is a deterministic function of its inputs, so a delta is the accepted input and which of it became
alerts; replaying it through the same kernels gives the same state. Card numbers stand in the delta, so that
it can be replayed for some cards only.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feature_store.codec import decode, encode
from feature_store.group_state import GroupState
from feature_store.layout import PROFILE, TRANSACTION
from feature_store.pieces import CARDS_PER_PIECE


@dataclass(frozen=True)
class Delta:
    """One batch of a key group."""

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

    def encode(self) -> bytes:
        """The delta as a blob."""
        # column by column: equal bytes lie together, which compresses twice as well
        columns = {f"t.{name}": self.transactions[name] for name in _KEPT}
        return encode(
            {
                "changes": self.changes,
                "change_cards": self.change_cards,
                "cards": self.cards,
                "alerted": np.packbits(self.alerted),
                **columns,
            }
        )

    @staticmethod
    def decode(blob: bytes, what: str) -> "Delta":
        """Inverse of `encode`.

        Raises:
            StateDamagedError: the blob cannot be trusted.
        """
        raw = decode(blob, what)
        cards = raw["cards"].astype(np.int32)
        transactions = np.zeros(cards.size, dtype=TRANSACTION)
        for name in _KEPT:
            transactions[name] = raw[f"t.{name}"]
        alerted = np.unpackbits(raw["alerted"].view(np.uint8), count=cards.size).astype(np.bool_)
        changes = raw["changes"].view(PROFILE)
        return Delta(changes, raw["change_cards"].astype(np.int32), transactions, cards, alerted)

    def replay(self, state: GroupState, piece_versions: NDArray[np.int64], sequence: int) -> None:
        """Do to `state` what the batch did, for the cards whose snapshot is older than this delta."""
        wanted = piece_versions[self.change_cards // CARDS_PER_PIECE] < sequence
        changes, cards = self.changes[wanted], self.change_cards[wanted]
        state.adopt(cards, changes)
        state.change_profiles(changes, cards)
        wanted = piece_versions[self.cards // CARDS_PER_PIECE] < sequence
        transactions, cards = self.transactions[wanted], self.cards[wanted]
        state.adopt(cards, transactions)
        applied = state.apply(transactions, cards)
        state.count_alerts(cards, transactions["arrival"], self.alerted[wanted], applied.restarted)


_KEPT = ("lo", "hi", "time", "arrival", "amount", "transaction", "merchant", "country")

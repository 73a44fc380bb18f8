"""What became of transactions, by their archived labels: fraud, refunded, genuine; of all others, unknown."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.kernels.hashing import hash_strings
from feature_store.layout import TRANSACTION_MASK
from streaming_job.decode.newest_labels import NewestLabels

OUTCOMES = ("unknown", "fraud", "refunded", "genuine")
"""What is known of a transaction, by its code."""
UNKNOWN, FRAUD, REFUNDED, GENUINE = range(4)


class Labels(NewestLabels):
    """The outcomes of labelled transactions."""

    def of(self, card_id: str, transaction_id: str) -> str:
        """Return what is known of a transaction, one of OUTCOMES."""
        identity = card_id, transaction_id
        return OUTCOMES[_code(self.fraud[identity]) if identity in self.fraud else UNKNOWN]

    def by_hash(self) -> "HashedLabels":
        """Return the outcomes for lookups by the hashes of decoded transactions."""
        cards, transactions = [pa.array(ids, pa.string()) for ids in zip(*self.fraud, strict=True)] or (
            [pa.array([], pa.string())] * 2
        )
        keys = _keys(hash_strings(cards)[0], hash_strings(transactions)[0])
        order = np.argsort(keys)
        codes = np.fromiter((_code(fraud) for fraud in self.fraud.values()), np.int8, keys.size)
        return HashedLabels(keys[order], codes[order])


class HashedLabels:
    """The outcomes of labelled transactions, by hash."""

    def __init__(self, keys: NDArray[np.uint64], codes: NDArray[np.int8]) -> None:
        """Take over the outcomes.

        Args:
            keys: hash of each labelled transaction, ascending, shape (n,).
            codes: index into OUTCOMES of each, shape (n,).
        """
        self._keys, self._codes = keys, codes

    def codes(self, batch: NDArray[np.void]) -> NDArray[np.int8]:
        """Return the outcome of each transaction as an index into OUTCOMES, shape (n,).

        Args:
            batch: records of TRANSACTION, shape (n,).
        """
        if not self._keys.size:
            return np.zeros(batch.size, np.int8)
        keys = _keys(batch["lo"], batch["transaction"])
        rows = np.minimum(np.searchsorted(self._keys, keys), self._keys.size - 1)
        return np.where(self._keys[rows] == keys, self._codes[rows], np.int8(UNKNOWN))


def _keys(cards: NDArray[np.uint64], transactions: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Combine the hashes of card and transaction; two of a million labels have the same with 10^-7."""
    return cards * np.uint64(0x9E3779B97F4A7C15) ^ (transactions & np.uint64(TRANSACTION_MASK))


def _code(fraud: bool | None) -> int:
    return REFUNDED if fraud is None else FRAUD if fraud else GENUINE

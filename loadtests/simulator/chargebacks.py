"""Delayed labels of transactions, as records of contract chargeback.v1."""

import heapq

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from feature_store.catalogue import DAY_MS
from loadtests.simulator.randomness import generator

FRAUD, GENUINE = "fraud", "genuine"


class Chargebacks:
    """Source of chargebacks for transactions with a known outcome; each is due after a delay.

    Give the transactions in order of arrival; how they are split into tables has no effect on the result.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        delay_ms: int = 7 * DAY_MS,
        spread: float = 0.0,
        fraud_share: float = 1.0,
        genuine_share: float = 0.0,
    ) -> None:
        """Start without chargebacks.

        Args:
            delay_ms: mean time from arrival to report.
            spread: relative variation of the delay, 0 to 1.
            fraud_share: share of the frauds that are reported as such.
            genuine_share: share of the genuine transactions that an analyst confirms as genuine.
        """
        self._delay_ms, self._spread = delay_ms, spread
        self._shares = np.array([genuine_share, fraud_share])
        self._rng = generator(seed, "chargebacks")
        self._waiting: list[tuple[int, int, bytes, bytes]] = []
        self._observed = 0

    def observe(self, transactions: pa.Table, accepted: npt.NDArray[np.bool_] | None = None) -> None:
        """Add transactions.

        Args:
            transactions: the transaction contract's columns, arrival_time int64 (ms) and label int8 (1 fraud,
                0 genuine, null unknown).
            accepted: mask of the rows that can get a label. Default: every row.
        """
        draws = self._rng.random((len(transactions), 2))
        label = transactions.column("label").combine_chunks().fill_null(-1).to_numpy(zero_copy_only=False)
        reported = (label >= 0) & (draws[:, 0] < self._shares[np.maximum(label, 0)])
        rows = np.flatnonzero(reported if accepted is None else reported & accepted)
        if not len(rows):
            return
        arrival = transactions.column("arrival_time").combine_chunks().to_numpy()[rows]
        factor = 1 + self._spread * (2 * draws[rows, 1] - 1)
        due = arrival + np.maximum(1, (self._delay_ms * factor).astype(np.int64))
        columns = ["transaction_id", "card_id", "merchant_id", "event_time"]
        records = transactions.select(columns).take(pa.array(rows)).to_pylist()
        for record, at, row in zip(records, due.tolist(), rows.tolist(), strict=True):
            value = record | {"reported_at": at, "label": FRAUD if label[row] else GENUINE}
            # the running number keeps the order of arrival among equal times
            entry = (at, self._observed, record["card_id"].encode(), orjson.dumps(value))
            heapq.heappush(self._waiting, entry)
            self._observed += 1

    def due(self, until_ms: float) -> tuple[npt.NDArray[np.int64], list[bytes], list[bytes]]:
        """Return new reports up to and including a time: times (ms, ascending), keys, values."""
        at, keys, values = [], [], []
        while self._waiting and self._waiting[0][0] <= until_ms:
            when, _, key, value = heapq.heappop(self._waiting)
            at.append(when)
            keys.append(key)
            values.append(value)
        return np.array(at, dtype=np.int64), keys, values

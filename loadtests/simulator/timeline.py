"""Transactions and chargebacks as one sequence, in order of arrival."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadtests.simulator.batch import EventBatch
from loadtests.simulator.chargebacks import Chargebacks
from loadtests.simulator.replay import ReplayBatch
from streaming_job.contracts.topics import Topics


@dataclass(frozen=True, eq=False)
class Records:
    """Records of one topic, in order of arrival; arrays and lists of equal length."""

    topic: str
    at: npt.NDArray[np.int64]
    """Arrivals, ms since 1970-01-01 UTC, ascending."""
    keys: Sequence[bytes]
    values: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.at)

    def columns(self, start: int, end: int) -> tuple[Sequence[bytes | None], Sequence[bytes]]:
        """Return the values and the keys of the records from `start` to before `end`."""
        return self.values[start:end], self.keys[start:end]

    def cut(self, start: int, end: int) -> "Records":
        """Return the records from `start` to before `end`."""
        if start == 0 and end == len(self):
            return self
        return Records(self.topic, self.at[start:end], self.keys[start:end], self.values[start:end])


def timeline(
    batches: Iterable[EventBatch | ReplayBatch],
    chargebacks: Chargebacks | None,
    topics: Topics,
    *,
    drain: bool,
) -> Iterator[Records]:
    """Yield transactions with the chargebacks between them, by time.

    Args:
        chargebacks: source of labels; None: no labels.
        drain: whether to yield the labels that are due after the last transaction.
    """
    for batch in batches:
        keys, values = batch.encode()
        transactions = Records(topics.transactions, batch.arrival, keys, values)
        if chargebacks is None:
            yield transactions
            continue
        if "label" in batch.table.column_names:
            chargebacks.observe(batch.table, batch.accepted)
        at, label_keys, label_values = chargebacks.due(int(batch.arrival[-1]))
        labels = Records(topics.chargebacks, at, label_keys, list(label_values))
        yield from merged(transactions, labels)
    if chargebacks is not None and drain:
        at, keys, label_values = chargebacks.due(float("inf"))
        if keys:
            yield Records(topics.chargebacks, at, keys, list(label_values))


def merged(many: Records, few: Records) -> Iterator[Records]:
    """Merge records by time; at the same millisecond those of `many` come first."""
    done_many = done_few = 0
    positions = np.searchsorted(many.at, few.at, side="right").tolist()
    for index, position in enumerate(positions):
        if position > done_many:
            if index > done_few:
                yield few.cut(done_few, index)
                done_few = index
            yield many.cut(done_many, position)
            done_many = position
    if len(few) > done_few:
        yield few.cut(done_few, len(few))
    if len(many) > done_many:
        yield many.cut(done_many, len(many))

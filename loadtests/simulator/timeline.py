"""One sequence of records for all topics, in the order of their arrival."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadtests.simulator.chargebacks import Chargebacks
from streaming_job.contracts.topics import Topics


@dataclass(frozen=True, eq=False)
class Records:
    """Records of one topic, in order of arrival; arrays and lists of equal length."""

    topic: str
    at: npt.NDArray[np.int64]
    """Arrival, ms since 1970-01-01 UTC, rising."""
    keys: list[bytes]
    values: list[bytes | None]

    def __len__(self) -> int:
        return len(self.at)

    def cut(self, start: int, end: int) -> "Records":
        """The records start..end - 1."""
        if start == 0 and end == len(self):
            return self
        return Records(self.topic, self.at[start:end], self.keys[start:end], self.values[start:end])


class Batch(Protocol):
    """Transactions of a simulated stream or of a file."""

    @property
    def arrival(self) -> npt.NDArray[np.int64]:
        """Milliseconds since 1970-01-01 UTC, rising."""
        ...

    @property
    def table(self) -> pa.Table:
        """See `Chargebacks.observe`."""
        ...

    @property
    def known(self) -> npt.NDArray[np.bool_] | None:
        """Rows that can get a label; None for all."""
        ...

    def encode(self) -> tuple[list[bytes], list[bytes | None]]:
        """Keys and values."""
        ...


def timeline(
    batches: Iterable[Batch], chargebacks: Chargebacks | None, topics: Topics, *, drain: bool
) -> Iterator[Records]:
    """Transactions with the chargebacks between them.

    Args:
        batches: transactions, each batch arriving after the one before.
        chargebacks: None for no labels.
        topics: where to.
        drain: after the last transaction give the labels that fall due later still.
    """
    for batch in batches:
        keys, values = batch.encode()
        transactions = Records(topics.transactions, batch.arrival, keys, values)
        if chargebacks is None:
            yield transactions
            continue
        if "label" in batch.table.column_names:
            chargebacks.observe(batch.table, batch.known)
        at, label_keys, label_values = chargebacks.due(int(batch.arrival[-1]))
        labels = Records(topics.chargebacks, at, label_keys, list(label_values))
        yield from merged(transactions, labels)
    if chargebacks is not None and drain:
        at, keys, left = chargebacks.due(float("inf"))
        if keys:
            yield Records(topics.chargebacks, at, keys, list(left))


def merged(many: Records, few: Records) -> Iterator[Records]:
    """Both in time order; at the same millisecond the records of `many` come first."""
    done_many = done_few = 0
    places = np.searchsorted(many.at, few.at, side="right").tolist()
    for index, place in enumerate(places):
        if place > done_many:
            if index > done_few:
                yield few.cut(done_few, index)
                done_few = index
            yield many.cut(done_many, place)
            done_many = place
    if len(few) > done_few:
        yield few.cut(done_few, len(few))
    if len(many) > done_many:
        yield many.cut(done_many, len(many))

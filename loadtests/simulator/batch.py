"""A batch of simulated records, with the ground truth of each."""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadtests.simulator import countries, disturbances, encode, malformed, tokens
from loadtests.simulator.randomness import U64
from loadtests.simulator.scenarios import GENUINE, SCENARIOS
from loadtests.simulator.world import CHANNELS, F64, I32, MCC, World

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EventBatch:
    """Records in order of arrival, with the ground truth of each; arrays of equal length."""

    world: World
    arrival: I64
    """ms since 1970-01-01 UTC."""
    event_time: I64
    """Event time in the record, ms since 1970-01-01 UTC."""
    number: U64
    """Number that the transaction_id encodes; a duplicate has the number of its original."""
    card: I32
    merchant: I32
    amount: F64
    channel: npt.NDArray[np.int8]
    scenario: npt.NDArray[np.int8]
    """Index into `scenarios.SCENARIOS`; 0 is genuine."""
    disturbance: npt.NDArray[np.int8]
    """Index into `disturbances.NAMES`; 0 is clean."""

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def fraud(self) -> npt.NDArray[np.bool_]:
        """True for fraudulent transactions."""
        return np.not_equal(self.scenario, GENUINE)

    @property
    def accepted(self) -> npt.NDArray[np.bool_]:
        """True for clean, out-of-order and late records; only these can get a chargeback."""
        return np.less_equal(self.disturbance, disturbances.LATE)

    def take(self, which: slice | np.ndarray) -> "EventBatch":
        """Select rows by a slice, a mask or indices."""
        return EventBatch(self.world, *(getattr(self, f.name)[which] for f in fields(self)[1:]))

    @staticmethod
    def concat(parts: "list[EventBatch]") -> "EventBatch":
        """Concatenate batches."""
        columns = (np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(EventBatch)[1:])
        return EventBatch(parts[0].world, *columns)

    @cached_property
    def table(self) -> pa.Table:
        """The transaction contract's columns, arrival_time, label, scenario and disturbance.

        arrival_time is in ms; label is int8, 1 for fraud.
        """
        cards, merchants = self.world.cards, self.world.merchants
        columns = {
            "transaction_id": tokens.hexadecimal(self.number),
            "card_id": cards.ids.take(pa.array(self.card)),
            "merchant_id": merchants.ids.take(pa.array(self.merchant)),
            "amount": pa.array(self.amount),
            "currency": _named(countries.CURRENCIES, cards.country[self.card]),
            "country": _named(countries.CODES, merchants.country[self.merchant]),
            "channel": _named(CHANNELS, self.channel),
            "mcc": _named(MCC, merchants.mcc[self.merchant]),
            "event_time": pa.array(self.event_time),
            "arrival_time": pa.array(self.arrival),
            "label": pa.array(self.fraud.astype(np.int8)),
            "scenario": _named(SCENARIOS, self.scenario),
            "disturbance": _named(disturbances.NAMES, self.disturbance),
        }
        return pa.table(columns)

    def encode(self) -> tuple[list[bytes], list[bytes | None]]:
        """Encode Kafka keys and values; malformed records are spoiled."""
        keys: list[bytes] = self.world.cards.keys[self.card].tolist()
        values: list[bytes | None] = list(encode.encode(self.table, trusted=True))
        rows = np.flatnonzero(self.disturbance >= disturbances.MALFORMED)
        spoilers = [spoil for _, _, spoil in malformed.KINDS.values()]
        for row, record in zip(rows.tolist(), encode.as_records(self.table, rows), strict=True):
            spoil = spoilers[self.disturbance[row] - disturbances.MALFORMED]
            values[row] = spoil(record, int(self.number[row] >> np.uint64(1)))
        return keys, values


def _named(names: np.ndarray, codes: np.ndarray) -> pa.StringArray:
    return pa.array(names.tolist()).take(pa.array(codes))

"""A log: the records of the job's inputs in the order of arrival. The worlds of the tests are logs."""

import json
from collections import Counter
from typing import Any

from loadtests.oracle import Record
from streaming_job.contracts.topics import Topics

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
START = 1_780_000_200_000
"""2026-05-28 20:30:00 UTC, a Thursday evening; all times below are ms from it."""
TOPICS = Topics(record_schemas="record-schemas")


class LogWorld:
    """Transactions, profile changes, rollouts, and schemas of framed transactions."""

    def __init__(self) -> None:
        self.transactions: list[Record] = []
        self.profiles: list[Record] = []
        self.rollouts: list[Record] = []
        self.schemas: list[Record] = []
        self._ends: Counter[int] = Counter()

    def partition_of(self, card: str) -> int:
        """Partition of a card's transactions."""
        return 0

    def tx(
        self,
        time: int,
        amount: float = 10.0,
        *,
        arrival: int | None = None,
        partition: int | None = None,
        **fields: Any,
    ) -> None:
        """Append a transaction; default: arrives at its time, in its card's partition."""
        value = {
            "transaction_id": f"t{len(self.transactions)}", "card_id": "c", "merchant_id": "m",
            "amount": amount, "currency": "EUR", "country": "FR", "event_time": START + time, **fields,
        }  # fmt: skip
        card = value["card_id"]
        self.raw_tx(
            json.dumps(value).encode(),
            time if arrival is None else arrival,
            key=card.encode(),
            partition=self.partition_of(card) if partition is None else partition,
        )

    def raw_tx(
        self, value: bytes | None, arrival: int = 0, key: bytes | None = b"c", partition: int = 0
    ) -> None:
        """Append a record of any content to the transactions."""
        offset = self._ends[partition]
        self._ends[partition] += 1
        self.transactions.append(Record(TOPICS.transactions, partition, offset, START + arrival, key, value))

    def profile(
        self,
        op: str,
        arrival: int = 0,
        card: str = "c",
        *,
        key: bytes | None = None,
        source: Any = None,
        **row: Any,
    ) -> None:
        """Append a profile change: `op` as in Debezium or "tombstone", `source` as in Debezium."""
        full = {
            "card_id": card, "status": "active", "home_country": "FR", "currency": "EUR",
            "credit_limit": 1000.0, "risk_tier": 0, "opened_on": 20_000, **row,
        }  # fmt: skip
        side = "before" if op == "d" else "after"
        value = None if op == "tombstone" else json.dumps({"op": op, side: full, "source": source}).encode()
        self.raw_profile(value, arrival, key or json.dumps({"card_id": card}).encode())

    def raw_profile(self, value: bytes | None, arrival: int = 0, key: bytes | None = b"{}") -> None:
        """Append a record of any content to the profiles."""
        offset = len(self.profiles)
        self.profiles.append(Record(TOPICS.profiles, 0, offset, START + arrival, key, value))

    def raw_rollout(self, value: bytes | None, arrival: int = 0) -> None:
        """Append a record of any content to the rollouts."""
        offset = len(self.rollouts)
        self.rollouts.append(Record(TOPICS.model_rollouts, 0, offset, START + arrival, b"r", value))

    def raw_schema(self, value: bytes | None, arrival: int = 0, partition: int = 0) -> None:
        """Append a record of any content to the schemas."""
        offset = len(self.schemas)
        self.schemas.append(Record(TOPICS.record_schemas, partition, offset, START + arrival, b"1", value))

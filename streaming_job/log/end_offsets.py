"""How far a micro-batch reads: fixed on the driver before it runs."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from streaming_job.log import topic_reader
from streaming_job.log.errors import PATIENCE_S, LogError

Offsets = dict[str, dict[str, int]]
"""Offset by topic and partition; partitions are strings because it becomes JSON."""
TIMEOUT_S = 5.0
PAUSE_S = 0.5
NEW_PARTITIONS_S = 10.0
"""How often new partitions are looked for."""


class LogEnds:
    """Asks the brokers for the first and last offsets of the input topics."""

    def __init__(self, settings: Mapping[str, str], transactions: str, tables: Sequence[str]) -> None:
        """Make a client; it connects when it is used.

        Args:
            settings: librdkafka's names, bootstrap.servers among them.
            transactions: topic of the transactions.
            tables: topics of the tables.
        """
        # asking for a topic is not to make it
        client: dict[str, Any] = {"log_level": 2, **settings, "allow.auto.create.topics": False}
        self._admin = AdminClient(client)
        self._topics = (transactions, *tables)
        self._partitions: dict[str, list[int]] = {}
        self._looked = -math.inf
        self._silent_since: float | None = None

    def first(self) -> Offsets:
        """Where each partition begins.

        Raises:
            LogError: no answer for too long.
        """
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        while (found := self._patiently(lambda: self._ask(self._topics, earliest))) is None:
            time.sleep(PAUSE_S)
        return found

    def last(self) -> Offsets | None:
        """Where each partition ends, open transactions left out; None while the brokers do not answer.

        The transactions are asked for first, so that a batch reads every table at least as far as it stood
        when the batch's last transaction had arrived.

        Raises:
            LogError: no answer for too long.
        """
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._patiently(
            lambda: self._ask(self._topics[:1], latest) | self._ask(self._topics[1:], latest)
        )

    def _patiently(self, ask: Callable[[], Offsets]) -> Offsets | None:
        try:
            found = ask()
        except KafkaException as fault:
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            if now - self._silent_since > PATIENCE_S:
                raise LogError(
                    f"the ends of the input topics cannot be read: {fault.args[0].str()}; check the brokers"
                ) from fault
            return None
        self._silent_since = None
        return found

    def _ask(self, topics: Sequence[str], spec: OffsetSpec) -> Offsets:
        if time.monotonic() - self._looked > NEW_PARTITIONS_S:
            self._look()
        places = {TopicPartition(topic, part): spec for topic in topics for part in self._partitions[topic]}
        answers = self._admin.list_offsets(
            places, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT_S
        )
        found: Offsets = {topic: {} for topic in topics}
        for place, answer in answers.items():
            found[place.topic][str(place.partition)] = answer.result().offset
        return found

    def _look(self) -> None:
        for topic in self._topics:
            self._partitions[topic] = topic_reader.partitions(self._admin, topic, TIMEOUT_S)
        self._looked = time.monotonic()


def limited(start: Mapping[str, int], end: Mapping[str, int], most: int) -> dict[str, int]:
    """An end at most about `most` records after the start; each partition gets its share of what waits.

    Args:
        start: offset by partition; a partition that is not there starts at 0.
        end: offset by partition.
        most: a partition with anything gets at least one record, so that a small one never waits for ever.
    """
    waiting = {part: offset - start.get(part, 0) for part, offset in end.items()}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    return {
        part: start.get(part, 0) + (max(1, count * most // total) if count else 0)
        for part, count in waiting.items()
    }


def require_no_loss(start: Offsets, end: Offsets) -> None:
    """See that no partition has become shorter.

    Raises:
        LogError: one has, or is gone.
    """
    for topic, starts in start.items():
        for partition, offset in starts.items():
            now = end.get(topic, {}).get(partition)
            if now is None or now < offset:
                found = "is gone" if now is None else f"ends at {now}"
                raise LogError(
                    f"{topic}-{partition} was read up to offset {offset} and {found}: the topic was made "
                    "anew, or has lost records; restore it, or start a new job id"
                )

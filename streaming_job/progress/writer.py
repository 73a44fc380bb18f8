"""The job's account of itself: progress records with totals that go on where the last on the topic ended.

The totals are not state of the query: what is on the topic is their only copy, and it becomes visible with
the batch that it tells of. A process that does not know the totals as of the batch before reads them there.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any

import orjson
from confluent_kafka import Message

from streaming_job import progress, reading
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.watermarks import Partitions
from streaming_job.progress.record import Batch
from streaming_job.settings import JobSettings
from streaming_job.progress.totals import Totals

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""For the end of the transaction of the batch before to reach the topic."""
LOOK_S = 0.05
BatchName = tuple[str, int]
"""(query id, batch id)."""


class Account:
    """Makes the progress record of each batch."""

    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._partitions = Partitions()
        self._known: dict[BatchName, Totals] = {}
        """Totals after the batch that is being written and after the one before it, as far as known."""
        # a batch tells only of key groups that had something to do, and of a rollout if one decided
        self._sizes: dict[int, dict[str, int]] = {}
        self._deciding: dict[str, Any] = {}

    def prepare(self, batch: Batch) -> None:
        """Know the totals as of the batch before, which is on the topics; to be called while nothing is open.

        Raises:
            KafkaException: the topic cannot be read.
        """
        before = (batch.query_id, batch.batch_id - 1)
        if before not in self._known:
            self._known = {before: Totals() if batch.batch_id == 0 else self._read(before)}

    def record(self, batch: Batch, outcome: Outcome, now: int) -> bytes:
        """The record of a batch that is going to be written; may be asked for again if that fails.

        Args:
            batch: the batch, prepared for.
            outcome: of all its key groups.
            now: wall clock just before the commit, ms.
        """
        name, before = (batch.query_id, batch.batch_id), (batch.query_id, batch.batch_id - 1)
        totals = self._known[before]
        told = progress.record(batch, outcome, now)
        after = totals.plus(told)
        self._known = {before: totals, name: after}
        self._sizes |= outcome.sizes
        told["state"] |= progress.total_sizes(self._sizes)
        if told["rollout_id"] is None:
            told |= self._deciding
        self._deciding = _rollout(told)
        told["partitions"] = self._partitions.plus(batch, outcome, self._settings.topics.transactions, now)
        told["totals"] = after.to_json()
        return orjson.dumps(told)

    def _read(self, wanted: BatchName) -> Totals:
        """The totals that the wanted record tells, which is the newest."""
        settings = self._settings
        reader = reading.consumer(settings.bootstrap_servers, settings.kafka, f"{settings.job_id}-account")
        deadline = time.monotonic() + PATIENCE_S
        try:
            while True:
                found = self._newest(reader)
                is_it = found is not None and (found["query_id"], found["batch_id"]) == wanted
                if is_it or time.monotonic() > deadline:
                    break
                time.sleep(LOOK_S)
        finally:
            reader.close()
        if not is_it:
            log.warning(
                "no progress of batch %d is on its topic any more: totals begin %s",
                wanted[1],
                "anew" if found is None else f"with those of batch {found['batch_id']}",
            )
        if found is None:
            return Totals()
        self._deciding = _rollout(found)
        entries = found["partitions"]
        self._partitions = Partitions({(entry["topic"], entry["partition"]): entry for entry in entries})
        return Totals.from_json(found["totals"])

    def _newest(self, reader: Any) -> dict[str, Any] | None:
        topic, job = self._settings.topics.job_progress, self._settings.job_id
        found: list[Message] = []
        for partition in reading.partitions(reader, topic):
            message = reading.newest(reader, topic, partition, lambda m: decoded(m, job) is not None)
            found += [message] if message is not None else []
        newest = max(found, key=lambda message: message.timestamp()[1], default=None)
        return None if newest is None else decoded(newest, job)


def _rollout(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told.get(name) for name in ("rollout_id", "model")}


def decoded(message: Message, job_id: str) -> dict[str, Any] | None:
    """A record of a job's progress that tells its totals; None if it is none."""
    if message.key() != job_id.encode():
        return None
    try:
        record: dict[str, Any] = orjson.loads(message.value() or b"")
        Totals.from_json(record["totals"])
        str(record["query_id"]), int(record["batch_id"]), record["partitions"][:0]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return record

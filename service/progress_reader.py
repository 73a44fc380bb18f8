"""Follows the newest progress record of each key group, which tells the group's totals.

The topic is read from its end: a start looks for one record of each group.
"""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from service.background import Background
from service.settings import ServiceSettings, say
from streaming_job.log import topic_reader
from streaming_job.progress.reader import newest_among, newest_by_group
from streaming_job.progress.totals import Totals

POLL_S = 0.2
RETRY_S = 1.0
AT_ONCE = 500
"""Records taken together; of each key group only the last is looked at."""


class ProgressReader(Background):
    """Progress of one job, by key group, kept up to date.

    Transactions that were aborted are never seen (read_committed). While the broker is away the records stay;
    the client reconnects by itself and continues where it was.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        super().__init__("progress-reader")
        self._settings = settings
        self._groups: dict[int, Mapping[str, Any]] = {}  # replaced, never altered: read without a lock
        self._unreadable = 0
        self._behind: set[int] | None = None
        self._fault: str | None = None

    @property
    def groups(self) -> Mapping[int, Mapping[str, Any]]:
        """Key group -> its newest progress record; those that have written none are not there."""
        return self._groups

    @property
    def totals(self) -> Totals:
        """Sums over all key groups, from the first transaction of each on."""
        return Totals.of_groups(Totals.from_json(record["totals"]) for record in self._groups.values())

    @property
    def unreadable(self) -> int:
        """Records of the job, met since the start, that were no progress."""
        return self._unreadable

    @property
    def waiting_for(self) -> str | None:
        """Why the totals are not complete; None once every partition has been read to its end."""
        if self.has_died:
            return "the thread that reads progress has died; restart the sidecar"
        if self._behind is None:
            return self._fault or "the progress topic has not been found yet"
        return "progress has not been read to its end yet" if self._behind else None

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except KafkaException as error:
                self._fault = self._words(error)
                self._stop.wait(RETRY_S)

    def _words(self, error: KafkaException) -> str:
        topic = self._settings.topics.job_progress
        if error.args and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return f"topic {topic} does not exist"
        return f"the progress topic cannot be read: {say(error)}"

    def _follow(self) -> None:
        """Read until told to stop, or until the client gives up."""
        settings = self._settings
        topic, job = settings.topics.job_progress, settings.job_id
        reader = topic_reader.consumer(settings.bootstrap_servers, settings.kafka, f"{job}-sidecar")
        try:
            places = []
            for partition in topic_reader.partitions(reader, topic):
                _, end = topic_reader.offsets(reader, TopicPartition(topic, partition))
                places.append(TopicPartition(topic, partition, end))
            # what comes between the two is read twice and counts once
            self._take(newest_by_group(reader, topic, job))
            reader.assign(places)
            self._behind = {place.partition for place in places}
            while not self._stop.is_set():
                self._take_all(reader)
        finally:
            reader.close()

    def _take_all(self, reader: Consumer) -> None:
        records = []
        for message in reader.consume(AT_ONCE, POLL_S):
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                assert self._behind is not None
                self._behind.discard(message.partition())
            elif error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)
        found, unreadable = newest_among(records, self._settings.job_id)
        self._unreadable += unreadable
        self._take(found)

    def _take(self, found: Mapping[int, Mapping[str, Any]]) -> None:
        newer = {group: record for group, record in found.items() if self._is_newer(group, record)}
        if newer:
            self._groups = {**self._groups, **newer}

    def _is_newer(self, group: int, record: Mapping[str, Any]) -> bool:
        """Commit ids only grow, unless totals had to begin anew: what is older was read again."""
        known = self._groups.get(group)
        return (
            known is None
            or record["commit_id"] > known["commit_id"]
            or record["totals"]["since"] != known["totals"]["since"]
        )

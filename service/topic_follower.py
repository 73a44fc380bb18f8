"""A thread of the sidecar that follows topics."""

import logging
from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import KafkaException, Message, TopicPartition

from feature_store.errors import FraudError
from service.background import Background, text_of
from service.settings import ServiceSettings
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import Consumer, describe
from streaming_job.log.records import PartitionId

log = logging.getLogger(__name__)
RETRY_S = 1.0
OFFSETS_PER_RECORD = 2
"""A record takes one offset; if it is alone in its transaction, the commit marker takes another."""


class TopicFollower(Background):
    """Reads the committed records of topics, from the offsets that `_begin` returns.

    While the brokers do not answer, what was read stays available; the client reconnects by itself and
    continues. When the client gives up, a topic is deleted, or `_take` fails, reading starts again with
    `_begin`, which raises a KafkaException without topic or answer.
    """

    def __init__(self, settings: ServiceSettings, topics: Sequence[str], what: str, wait_ms: int = 10):
        """Prepare the thread without connecting.

        Args:
            what: a plural noun for the records, used in the thread's name and in messages.
            wait_ms: how long the broker waits for a record before it answers that there is none.
        """
        super().__init__(f"{what}-follower")
        self._settings, self._topics, self._what = settings, topics, what
        self._tuning = {"fetch.wait.max.ms": wait_ms}
        self._behind: set[PartitionId] | None = None
        """Partitions that have not been read to their end since the last `_begin`; None before the first."""
        self._fault: str | None = None
        """Why the topics cannot be read now."""
        self.trouble: str | None = None
        """See `follow.Follower`."""

    @property
    def waiting_for(self) -> str | None:
        """Why records may be missing; None if the topics have been read to their ends and can be read now."""
        if self.has_ended:
            return f"the thread that reads {self._what} has died; restart the sidecar"
        if self._behind is None:
            return self._fault or f"{self._what} have not been read yet"
        return self._fault or (f"{self._what} have not been read to their end yet" if self._behind else None)

    @property
    def missing(self) -> str | None:
        """Why records may be missing, also while the brokers do not answer for long; None if none are."""
        return self.waiting_for or self.trouble

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        """Return the offsets from which `_take` gets records; an override may read earlier records itself."""
        raise NotImplementedError

    def _newest_records(self, reader: Consumer, count: int) -> list[TopicPartition]:
        """Estimate where the newest `count` records of each partition begin."""
        back = OFFSETS_PER_RECORD * count
        return [
            TopicPartition(topic, partition, max(first, end - back))
            for topic in self._topics
            for partition, (first, end) in topic_reader.bounds(reader, topic).items()
        ]

    def _take(self, records: Sequence[Message]) -> None:
        """Process new records; the list may be empty.

        Raises:
            FraudError: they cannot be processed now; `waiting_for` gives the reason, and `_begin` is called.
        """
        raise NotImplementedError

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except KafkaException as error:
                if topic_reader.is_missing(error):
                    self._fault = f"topic {' or '.join(self._topics)} does not exist"
                else:
                    self._fault = f"{self._what} cannot be read: {describe(error)}"
                self._stop.wait(RETRY_S)
            except Exception as error:
                fault = text_of(error)
                if not isinstance(error, FraudError) and fault != self._fault:
                    log.exception("%s cannot be read", self._what)
                self._fault = fault
                self._stop.wait(RETRY_S)

    def _follow(self) -> None:
        """Read until stopped; raise KafkaException if a topic is missing or the client gives up.

        A FraudError of `_begin` or `_take` is raised, too.
        """
        name = f"{self._settings.job_id}-sidecar"
        with closing(clients.reader(self._settings, name, tuning=self._tuning)) as reader:
            follower = follow.Follower(reader, self._begin(reader))
            self._behind, self._fault = follower.behind, None
            while not self._stop.is_set():
                self._take(follower.poll())
                self.trouble = follower.trouble

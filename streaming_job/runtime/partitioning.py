"""The checks that the job and the producers of transactions agree on the partition of each card."""

import threading
from contextlib import closing, suppress

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException, TopicPartition

from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import describe
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.runtime.checkpoint import Fixed
from streaming_job.runtime.preconditions import TIMEOUT_S, StartUpError
from streaming_job.settings import JobSettings

SAMPLE = 200
"""Number of the newest records of each partition that are checked."""
COUNT_S = 10.0
"""Interval at which the partitions are counted while the job runs."""


def count_partitions(settings: JobSettings) -> int:
    """Return the number of partitions of the transactions' topic.

    Raises:
        StartUpError: no such topic, or the brokers do not answer.
    """
    try:
        return len(topic_reader.partitions(clients.admin(settings), settings.topics.transactions, TIMEOUT_S))
    except KafkaException as fault:
        raise StartUpError(
            f"the partitions of {settings.topics.transactions} cannot be counted ({describe(fault)}); "
            "check the brokers"
        ) from fault


def require_same_partitions(settings: JobSettings, original: int, current: int) -> None:
    """Check that the transactions' topic has as many partitions as when the job began.

    Raises:
        StartUpError: the number differs, so producers send cards to partitions that lack the cards' history.
    """
    if current != original:
        raise StartUpError(
            f"{settings.topics.transactions} has {current} partitions, and had {original} when the job "
            "began: cards would be decided without their history; use a topic with "
            f"{original} partitions again, or start a new job id on a new topic into which the history is "
            "replayed (docs/operations.md)"
        )


class PartitionWatch:
    """A thread that counts the partitions of the transactions' topic while the job runs; a context manager.

    Each count needs a new connection, which takes 50 ms; no alert should wait for it.
    """

    def __init__(self, settings: JobSettings, original: int) -> None:
        """Create without counting.

        Args:
            settings: settings of the job.
            original: number of partitions when the job began.
        """
        self._settings = settings
        self._original = self._current = original
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="partition-watch", daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(COUNT_S):
            with suppress(StartUpError):  # unreachable brokers are handled by the key groups
                self._current = count_partitions(self._settings)

    def require_same(self) -> None:
        """Check that the last count equals the number of partitions when the job began.

        Raises:
            StartUpError: the number has changed.
        """
        require_same_partitions(self._settings, self._original, self._current)

    def __enter__(self) -> "PartitionWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()


def require_fixed(fixed: Fixed, settings: JobSettings, partitions: int) -> None:
    """Check that settings and number of partitions are those with which the checkpoint began.

    Raises:
        StartUpError: one of them differs.
    """
    for variable, before, now in (
        ("FRAUD_JOB_ID", fixed.job_id, settings.job_id),
        ("FRAUD_PARTITIONER", fixed.partitioner, settings.partitioner.value),
        ("FRAUD_KEY_GROUPS", fixed.key_groups, settings.key_groups),
        ("FRAUD_MERCHANT_FACTS", _word(fixed.label_delay_ms is not None), _word(settings.merchant_facts)),
        ("FRAUD_LABEL_DELAY_MS", fixed.label_delay_ms, settings.merchant_delay_ms),
    ):
        if before != now:
            raise StartUpError(
                f"the checkpoint began with {variable}={before}, the settings say {now}; set "
                f"{variable}={before}, or have an empty checkpoint take over (docs/operations.md, Changing a "
                "running job)"
            )
    require_same_partitions(settings, fixed.partitions, partitions)


def _word(flag: bool) -> str:
    return "true" if flag else "false"


def require_partitioner(settings: JobSettings, partitions: int) -> None:
    """Check at a first start that records are in the partitions that the partitioner computes for them.

    Raises:
        StartUpError: the partitioner puts more than a quarter of the sampled records into other partitions,
            and another partitioner fewer than half as many; or there are more key groups than partitions;
            or the records cannot be read.
    """
    if settings.key_groups > partitions:
        raise StartUpError(
            f"{settings.key_groups} key groups cannot share {partitions} partitions of "
            f"{settings.topics.transactions}; set FRAUD_KEY_GROUPS={partitions} at most"
        )
    keys, record_partitions = _sample(settings, partitions)
    if not keys:
        return
    column = pa.array(keys, pa.binary())
    configured = settings.partitioner
    wrong = {
        partitioner: int(
            (KeyGroups(partitioner, partitions, 1).partitions_of(column) != np.array(record_partitions)).sum()
        )
        for partitioner in Partitioner
    }
    best = min(wrong, key=lambda partitioner: wrong[partitioner])
    # a wrong partitioner is right for some keys by chance: with two partitions, for every second key
    if 4 * wrong[configured] <= len(keys) or 2 * wrong[best] >= wrong[configured]:
        return
    raise StartUpError(
        f"only {len(keys) - wrong[configured]} of {len(keys)} records of {settings.topics.transactions} lie "
        f"where {configured.value} puts their keys, {len(keys) - wrong[best]} where {best.value} does; set "
        f"FRAUD_PARTITIONER={best.value}, or have the producers use {configured.value}"
    )


def _sample(settings: JobSettings, partitions: int) -> tuple[list[bytes], list[int]]:
    """Return keys of the newest records, and their partitions."""
    topic = settings.topics.transactions
    keys: list[bytes] = []
    key_partitions: list[int] = []
    try:
        with closing(clients.reader(settings, f"{settings.job_id}-start")) as reader:
            for partition in range(partitions):
                first, end = topic_reader.offsets(reader, TopicPartition(topic, partition))
                start = TopicPartition(topic, partition, max(first, end - SAMPLE))
                for message in follow.to_end(reader, start, end):
                    if key := message.key():
                        keys.append(key)
                        key_partitions.append(partition)
    except KafkaException as fault:
        raise StartUpError(f"{topic} cannot be read ({describe(fault)}); check the brokers") from fault
    return keys, key_partitions

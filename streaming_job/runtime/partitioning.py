"""The checks that the job and the producers of transactions agree on the partition of each card."""

import threading
from contextlib import closing, suppress

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException, TopicPartition

from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import describe
from streaming_job.log.partitioner import KeyGroups, Layout, Partitioner
from streaming_job.log.records import Offsets
from streaming_job.runtime.checkpoint import FixedSettings
from streaming_job.runtime.preconditions import TIMEOUT_S, StartUpError
from streaming_job.settings import JobSettings

SAMPLE = 200
"""Number of the newest records of each partition that are checked."""
TAKEOVER = "have an empty checkpoint take over"
MOVE = "drain the job, then have an empty checkpoint take over"
REPLAY = "switch to a replay that decides with the new value"
OTHERS = "give the checkpoint that goes with the other topic (fraud replay switch, fraud replay back)"
OTHER_JOB = "give the other job a checkpoint of its own, FRAUD_CHECKPOINT"
"""How each fixed setting is changed."""
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
    if current == original or (settings.drain and current > original):
        return  # a job that is drained decides the partitions that it knows
    text = (
        f"{settings.topics.transactions} has {current} partitions, and had {original} when the job began: "
        "cards would be decided without their history; "
    )
    if current < original:
        raise StartUpError(f"{text}restore the topic, or take over to another one (docs/operations.md)")
    raise StartUpError(
        f"{text}stop the producers, drain the job (FRAUD_DRAIN=true), then have an empty checkpoint take "
        "over with the cards in their new partitions; the steps: "
        f"`fraud job status --move-to {settings.topics.transactions}`"
    )


class PartitionWatch:
    """A thread that counts the partitions of the transactions' topic while the job runs; a context manager.

    Each count needs a new connection, which takes 50 ms; no alert should wait for it.
    """

    def __init__(self, settings: JobSettings, original: int) -> None:
        """Create without counting.

        Args:
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
        """Check that the last count equals the number of partitions when the job began."""
        require_same_partitions(self._settings, self._original, self._current)

    def __enter__(self) -> "PartitionWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()


def require_fixed(fixed: FixedSettings, settings: JobSettings, partitions: int) -> None:
    """Check that settings and number of partitions are those with which the checkpoint began.

    Raises:
        StartUpError: one of them differs.
    """
    delay_ms = fixed.label_delay_ms
    for variable, before, now, change in (
        ("FRAUD_JOB_ID", fixed.job_id, settings.job_id, OTHER_JOB),
        ("FRAUD_TOPICS__TRANSACTIONS", fixed.layout.topic, settings.topics.transactions, MOVE),
        ("FRAUD_PARTITIONER", fixed.layout.partitioner.value, settings.partitioner.value, MOVE),
        ("FRAUD_KEY_GROUPS", fixed.key_groups, settings.key_groups, TAKEOVER),
        ("FRAUD_TOPICS__MODEL_ROLLOUTS", fixed.rollout_topics[-1], settings.topics.model_rollouts, OTHERS),
        ("FRAUD_MERCHANT_FACTS", _word(delay_ms is not None), _word(settings.merchant_facts), REPLAY),
        ("FRAUD_LABEL_DELAY_MS", delay_ms, settings.merchant_delay_ms, REPLAY),
    ):
        if before != now:
            raise StartUpError(
                f"the checkpoint began with {variable}={before}, the settings say {now}; set "
                f"{variable}={before}, or {change} (docs/operations.md, Changing a running job)"
            )
    require_same_partitions(settings, fixed.layout.partitions, partitions)


def _word(flag: bool) -> str:
    return "true" if flag else "false"


def require_partitioner(settings: JobSettings, partitions: int) -> None:
    """Check at a first start that records are in the partitions that the partitioner computes for them.

    A takeover may find records of before it: `require_moved` checks the later ones.

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
    keys, record_partitions = _sample(settings, partitions, {}) if not settings.predecessor else ([], [])
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


def require_moved(settings: JobSettings, layout: Layout, ends: Offsets) -> None:
    """Check that no producer still writes by the layout that the transactions had before they moved.

    Args:
        layout: where the transactions are now.
        ends: where they ended before, by partition; of the same topic or of another one.

    Raises:
        StartUpError: the topic that they have left has later records; or later records of the same topic are
            not where `layout` puts them; or the records cannot be read.
    """
    left = {tp for tp in ends if tp[0] != layout.topic}
    try:
        with closing(clients.reader(settings, f"{settings.job_id}-start")) as reader:
            last = {tp: topic_reader.offsets(reader, TopicPartition(*tp))[1] for tp in left}
    except KafkaException as fault:
        raise StartUpError(
            f"the former topic cannot be read ({describe(fault)}); check the brokers"
        ) from fault
    advice = "stop the producers that do so, drain the predecessor again, and begin with an empty checkpoint"
    if later := sum(max(0, end - ends[tp]) for tp, end in last.items()):
        raise StartUpError(
            f"{later} records were written to {min(left)[0]} after the predecessor was drained: {advice}"
        )
    keys, record_partitions = _sample(settings, layout.partitions, ends)
    if not keys:
        return
    places = layout.key_groups(1).partitions_of(pa.array(keys, pa.binary()))
    if 4 * (wrong := int((places != np.array(record_partitions)).sum())) > len(keys):
        if left:
            advice = (
                "correct FRAUD_PARTITIONER and begin with an empty checkpoint; or, if the producers are "
                "wrong, have them write to a new topic, and move the cards there"
            )
        raise StartUpError(
            f"{wrong} of {len(keys)} records of {layout} lie in other partitions than theirs: {advice}"
        )


def _sample(settings: JobSettings, partitions: int, starts: Offsets) -> tuple[list[bytes], list[int]]:
    """Return keys of the newest records from `starts` on, and their partitions."""
    topic = settings.topics.transactions
    keys: list[bytes] = []
    key_partitions: list[int] = []
    try:
        with closing(clients.reader(settings, f"{settings.job_id}-start")) as reader:
            for partition in range(partitions):
                first, end = topic_reader.offsets(reader, TopicPartition(topic, partition))
                start = TopicPartition(
                    topic, partition, max(first, end - SAMPLE, min(starts.get((topic, partition), 0), end))
                )
                for message in follow.to_end(reader, start, end):
                    if key := message.key():
                        keys.append(key)
                        key_partitions.append(partition)
    except KafkaException as fault:
        raise StartUpError(f"{topic} cannot be read ({describe(fault)}); check the brokers") from fault
    return keys, key_partitions

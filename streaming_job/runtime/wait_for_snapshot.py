"""The wait for Debezium's first snapshot of the profiles, at a first start.

A group reads every table to its end before it decides, so it lacks at most the profiles that a running
snapshot has not written yet.
The first snapshot counts as over once some partition of the profile topic ends with the snapshot's last row,
or with a record that is no snapshot row (docs/decisions/011-snapshots-of-the-profiles.md).
"""

import logging
import threading
import time
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition

from streaming_job.decode import snapshots
from streaming_job.decode.strict import Rejected, parse_object
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import Consumer, describe
from streaming_job.runtime.preconditions import StartUpError
from streaming_job.settings import JobSettings

log = logging.getLogger(__name__)

LOOK_S = 1.0
LOG_S = 10.0
RUNNING = ("first", "first_in_data_collection", "true", True)
"""Values of `source.snapshot` of a row that is not the last one of its table in the snapshot."""


@dataclass(frozen=True)
class Profiles:
    """The state of the profile topic."""

    records: int
    """Number of offsets between first and end offset, over all partitions."""
    loaded: bool
    """Whether the first snapshot is over."""

    def __str__(self) -> str:
        return f"{self.records} records, the last row not among them" if self.records else "an empty topic"


def ends_wait(value: bytes | None) -> bool:
    """Return whether the last record of a partition shows that the first snapshot is over."""
    try:
        envelope = parse_object(value)
    except Rejected:
        return True  # a tombstone, or a record that is not Debezium's
    return envelope.get("op") != "r" or snapshots.source(envelope).get("snapshot") not in RUNNING


def wait_for_snapshot(settings: JobSettings, stop: threading.Event) -> None:
    """Wait until the profiles are complete, or until a stop is requested.

    Raises:
        StartUpError: the snapshot did not end in time, or the profiles cannot be read.
    """
    if settings.wait_for_snapshot_s == 0:
        return
    topic = settings.topics.profiles
    end = time.monotonic() + settings.wait_for_snapshot_s
    last_log = -LOG_S
    try:
        with closing(clients.reader(settings, f"{settings.job_id}-bootstrap")) as reader:
            while not (state := _look(reader, topic)).loaded:
                if time.monotonic() > end:
                    raise StartUpError(
                        f"Debezium's first snapshot on {topic} has not ended in "
                        f"{settings.wait_for_snapshot_s} s ({state}); look at Kafka Connect, raise "
                        "FRAUD_WAIT_FOR_SNAPSHOT_S, or set it to 0 to decide without waiting for profiles"
                    )
                if time.monotonic() - last_log > LOG_S:
                    log.info("waiting for the end of Debezium's first snapshot on %s: %s", topic, state)
                    last_log = time.monotonic()
                if stop.wait(LOOK_S):
                    return
    except KafkaException as fault:
        raise StartUpError(
            f"the profiles on {topic} cannot be read ({describe(fault)}); check the brokers"
        ) from fault


def _look(reader: Consumer, topic: str) -> Profiles:
    records, loaded = 0, False
    for partition, (first, end) in topic_reader.bounds(reader, topic).items():
        records += end - first
        if first < end and not loaded:
            last = follow.newest(reader, TopicPartition(topic, partition))
            loaded = bool(last) and ends_wait(last[0].value())
    return Profiles(records, loaded)

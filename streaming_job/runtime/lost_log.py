"""What a first start finds lost of its log: profiles by compaction, the oldest transactions by retention."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are its documented names
    ConfigResource,
    ResourceType,
)

from feature_store.catalogue import WINDOWS
from streaming_job.archive.followers import LogArchive, log_archive
from streaming_job.contracts.topics import TABLE
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import describe
from streaming_job.log.losses import Losses
from streaming_job.runtime.preconditions import TIMEOUT_S, StartUpError
from streaming_job.settings import JobSettings

POLICY = "cleanup.policy"


def find(settings: JobSettings, partitions: int) -> Losses:
    """Return what the log has lost by now.

    Args:
        partitions: number of partitions of the transactions.

    Raises:
        StartUpError: the brokers do not answer.
        ArchiveError: the archive in which the log begins is damaged.
    """
    archive = log_archive(settings)
    try:
        return Losses(
            _compacted_before(settings, archive), _windows_before(settings, archive, range(partitions))
        )
    except (KafkaException, TimeoutError) as fault:
        raise StartUpError(
            f"the beginning of the log cannot be read ({describe(fault)}); check the brokers"
        ) from fault


def _compacted_before(settings: JobSettings, archive: LogArchive | None) -> int | None:
    """Return the arrival before which compaction may have removed profiles; None: it has removed none.

    A version is removed only after a newer one has reached the age `min.compaction.lag.ms`, so those that
    were in force since then are there. Of a log that begins in an archive, the archive's beginning counts.
    """
    topic = settings.topics.profiles
    if archive is not None and (manifests := archive.manifests(topic)):
        return max(manifest.compacted_before_ms for manifest in manifests) or None
    if "compact" not in (_policy(settings, topic) or "compact"):
        return None
    return int(time.time() * 1000) - TABLE["profiles"].retention.compaction_lag_ms


def _policy(settings: JobSettings, topic: str) -> str | None:
    """Return the topic's cleanup policy; None if the job has no permission to read it."""
    admin = clients.admin(settings)
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    try:
        entries: dict[str, Any] = answer.result(timeout=TIMEOUT_S)
    except KafkaException as fault:
        if fault.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return None
        raise
    return str(entries[POLICY].value)


def _windows_before(settings: JobSettings, archive: LogArchive | None, partitions: range) -> int | None:
    """Return the arrival before which windows may lack transactions; None: the log has its beginning."""
    begins = max(_arrivals(settings, archive, partitions), default=None)
    return None if begins is None else begins + max(WINDOWS.values()) + settings.allowed_lateness_ms


def _arrivals(settings: JobSettings, archive: LogArchive | None, partitions: range) -> Iterator[int]:
    """Yield the arrival of the first transaction of each partition that has lost earlier ones, ms."""
    topic = settings.topics.transactions
    with closing(clients.reader(settings, settings.job_id)) as reader:
        for part in partitions:
            first, _ = topic_reader.offsets(reader, TopicPartition(topic, part))
            if archive is not None and (manifest := archive.manifest((topic, part))) is not None:
                whole_from = manifest.whole_from
                span = next(manifest.files(whole_from), None)
                if whole_from < first and span is not None:
                    if whole_from > 0:
                        yield span.least_ms
                    continue
            if first > 0:
                message = next(follow.to_end(reader, TopicPartition(topic, part, first)), None)
                yield int(time.time() * 1000) if message is None else message.timestamp()[1]

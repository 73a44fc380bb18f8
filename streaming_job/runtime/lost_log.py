"""What a first start finds lost of its log: profiles by compaction, the oldest transactions by retention."""

import time
from collections.abc import Iterator
from contextlib import closing

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from feature_store.catalogue import WINDOWS
from streaming_job.archive.followers import LogArchive, log_archive
from streaming_job.contracts.topics import TABLE
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import Consumer, describe
from streaming_job.log.losses import Losses
from streaming_job.progress.reader import newest_by_group
from streaming_job.runtime.preconditions import StartUpError
from streaming_job.settings import JobSettings

POLICY = "cleanup.policy"


def find(settings: JobSettings) -> Losses:
    """Return what the log has lost by now.

    Raises:
        StartUpError: the brokers do not answer.
        ArchiveError: the archive in which the log begins is damaged.
    """
    archive = log_archive(settings)
    try:
        with closing(clients.reader(settings, settings.job_id)) as reader:
            return Losses(
                _compacted_before(settings, archive, reader), _windows_before(settings, archive, reader)
            )
    except (KafkaException, TimeoutError) as fault:
        raise StartUpError(
            f"the beginning of the log cannot be read ({describe(fault)}); check the brokers"
        ) from fault


def _compacted_before(settings: JobSettings, archive: LogArchive | None, reader: Consumer) -> int | None:
    """Return the arrival before which compaction may have removed profiles; None: it has removed none.

    A version is removed only after a newer one has reached the age `min.compaction.lag.ms`, so those that
    were in force since then are there. Of a log that begins in an archive, the archive's beginning counts, if
    what follows the archive is no older.
    """
    topic = settings.topics.profiles
    if "compact" not in (_policy(settings, topic) or "compact"):
        return None
    limit = TABLE["profiles"].retention.compacted_before(int(time.time() * 1000))
    if archive is None:
        return limit
    befores = []
    for part in topic_reader.partitions(reader, topic):
        first, _ = topic_reader.offsets(reader, TopicPartition(topic, part))
        manifest = archive.manifest((topic, part))
        if manifest is None or manifest.whole_from > 0:
            return limit
        after = follow.first_arrival(reader, TopicPartition(topic, part, max(first, manifest.end)))
        befores.append(manifest.compacted_before_ms if after is None or after >= limit else limit)
    return max(befores, default=0) or None


def _policy(settings: JobSettings, topic: str) -> str | None:
    """Return the topic's cleanup policy; None if the job has no permission to read it."""
    try:
        return str(topic_reader.settings_of(clients.admin(settings), topic)[POLICY].value)
    except KafkaException as fault:
        if fault.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return None
        raise


def _windows_before(settings: JobSettings, archive: LogArchive | None, reader: Consumer) -> int | None:
    """Return the arrival before which windows may lack transactions; None: the log has its beginning."""
    beginnings = [*_beginnings(settings, archive, reader), *_moves(settings, reader)]
    begins = max(beginnings, default=None)
    if begins is None:
        return None
    # the first transaction's windows reach back further the later it is, and one before it may be dated ahead
    return begins + max(WINDOWS.values()) + settings.allowed_lateness_ms + settings.allowed_skew_ms


def _moves(settings: JobSettings, reader: Consumer) -> Iterator[int]:
    """Yield the time, ms, of a takeover at or before which the transactions have moved.

    What came before is in other partitions, or in another topic, and belongs to no card's history here.
    """
    if settings.predecessor:
        for record in newest_by_group(reader, settings.topics.job_progress, settings.job_id).values():
            if (takeover := record.get("takeover", {})).get("moved"):
                yield takeover["at"]


def _beginnings(settings: JobSettings, archive: LogArchive | None, reader: Consumer) -> Iterator[int]:
    """Yield the arrival of the first transaction of each partition that has lost earlier ones, ms."""
    topic = settings.topics.transactions
    for part in topic_reader.partitions(reader, topic):
        place = topic, part
        first, _ = topic_reader.offsets(reader, TopicPartition(*place))
        begin = first if archive is None else archive.first({place: first})[place]
        if begin == 0:
            continue
        manifest = None if archive is None or begin == first else archive.manifest(place)
        span = next(manifest.files(begin), None) if manifest is not None else None
        if span is not None:
            yield span.least_ms
        else:
            arrival = follow.first_arrival(reader, TopicPartition(*place, first))
            yield int(time.time() * 1000) if arrival is None else arrival

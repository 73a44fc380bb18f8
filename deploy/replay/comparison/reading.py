"""Reading of whole topics into Arrow columns, without an object for each record.

A topic begins in the archive, if there is one that has it.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import closing

import orjson
import pyarrow as pa
from confluent_kafka import TopicPartition

from deploy.replay.comparison.columns import Ranges
from deploy.replay.record import ReplayError
from loadtests.audit.commits import source_of_value
from loadtests.audit.topic_log import TopicLog
from streaming_job.archive.followers import LogArchive, follow
from streaming_job.log import clients
from streaming_job.log.errors import PATIENCE_S
from streaming_job.log.records import Offsets, Records
from streaming_job.settings import JobSettings

MOST, MOST_BYTES, WAIT_S = 200_000, 64 << 20, 0.2
SKEW_MS = 60_000
"""Longest time by which the clock of an output's writer may be behind that of a broker."""
TIMEOUT_S = 30.0
TUNING = {
    "queued.max.messages.kbytes": "131072",
    "max.partition.fetch.bytes": str(8 << 20),
    "fetch.max.bytes": str(64 << 20),
}


def values(settings: JobSettings, archive: LogArchive | None, topic: str) -> pa.ChunkedArray:
    """Return the values of all committed records of a topic up to its present end, large_binary.

    Raises:
        ArchiveError: the archive cannot be read.
        ReplayError: nothing more arrives.
    """
    chunks = [
        records.values.drop_null().cast(pa.large_binary())
        for records in _records(settings, archive, _beginnings(settings, archive, topic))
    ]
    return pa.chunked_array(chunks, pa.large_binary())


def _records(settings: JobSettings, archive: LogArchive | None, first: Offsets) -> Iterator[Records]:
    """Yield the committed records of partitions from some offsets on, up to their present ends."""
    log = TopicLog(settings.bootstrap_servers, settings.kafka)
    ends = {(topic, part): end for topic in {tp[0] for tp in first} for part, end in log.ends(topic).items()}
    remaining = {tp: ends[tp] for tp, offset in first.items() if offset < ends.get(tp, 0)}
    if not remaining:
        return
    client = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers, **TUNING}
    follower = follow(archive, client, {tp: first[tp] for tp in remaining}, ())
    arrived = time.monotonic()
    try:
        follower.limit(remaining)
        while any(follower.positions[tp] < end for tp, end in remaining.items()):
            before = dict(follower.positions)
            yield from follower.take(MOST, MOST_BYTES, WAIT_S)
            if follower.positions != before:
                arrived = time.monotonic()
            elif time.monotonic() - arrived > PATIENCE_S:
                topics = ", ".join(sorted({topic for topic, _ in remaining}))
                raise ReplayError(
                    f"no more records of {topics} arrive ({follower.trouble()}); check the brokers"
                )
    finally:
        follower.close()


def _beginnings(settings: JobSettings, archive: LogArchive | None, topic: str) -> Offsets:
    """Return the offset of each partition from which on archive and topic have all records."""
    log = TopicLog(settings.bootstrap_servers, settings.kafka)
    first = {(topic, part): offset for part, offset in log.beginnings(topic).items()}
    return first if archive is None else archive.first(first)


def kept(
    settings: JobSettings, archive: LogArchive | None, outputs: Collection[str], ranges: Ranges
) -> Ranges:
    """Return the ranges without the transactions about which outputs may have lost records to retention.

    A partition of an output has records about transactions of several partitions, of each in their order. If
    it has none about a partition, because no card has come to both, or they are few, then their times count:
    what was deleted was written before the first record that is left, about transactions that had arrived.
    """
    topic = settings.topics.transactions
    starts = {part: start for part, (start, _) in ranges.items()}
    for tp, first in [at for output in outputs for at in _beginnings(settings, archive, output).items()]:
        if first == 0:
            continue
        unknown, since, read = set(starts), None, 0
        for records in _records(settings, archive, {tp: first}):
            since = int(records.arrivals[0]) if since is None else since
            for name, of, offset in map(source_of_value, records.values.to_pylist()):
                if name == topic and of in unknown:
                    unknown.remove(of)
                    starts[of] = max(starts[of], offset + 1)  # other records about it may be lost
            read += len(records)
            if not unknown or read >= MOST:
                break
        arrived = {} if since is None or not unknown else _arrived(settings, unknown, since + SKEW_MS)
        for of in unknown:
            starts[of] = max(starts[of], arrived.get(of, ranges[of][1]))
    return {part: (min(starts[part], end), end) for part, (_, end) in ranges.items()}


def _arrived(settings: JobSettings, parts: Collection[int], since: int) -> dict[int, int]:
    """Return the offset of the first transaction that arrived at or after a time, ms, by partition.

    A partition without one is left out.
    """
    asked = [TopicPartition(settings.topics.transactions, part, since) for part in sorted(parts)]
    with closing(clients.reader(settings, "fraud-replay")) as reader:
        answers = reader.offsets_for_times(asked, TIMEOUT_S)
    return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}


def decided(live: JobSettings, replay: JobSettings) -> Ranges:
    """Return the offsets of each partition that both jobs have decided: from the replay's first one on.

    Raises:
        ReplayError: one of them has decided nothing.
    """
    log, topic = TopicLog(live.bootstrap_servers, live.kafka), live.topics.transactions
    both = [log.committed(job.job_id, (topic,)) for job in (live, replay)]
    ends = {part: min(each.get((topic, part), 0) for each in both) for part in log.ends(topic)}
    if not any(ends.values()):
        raise ReplayError("one of the two jobs has decided nothing; see `fraud replay status`")
    starts = _starts(log, replay)
    if not starts:
        raise ReplayError(
            f"{replay.topics.job_progress} has no record left that says where the replay has begun; begin "
            "another replay"
        )
    return {part: (starts.get(part, end), end) for part, end in ends.items()}


def _starts(log: TopicLog, replay: JobSettings) -> dict[int, int]:
    """Return the first offset of each partition in a replay's range, from its first progress records."""
    starts: dict[int, int] = {}
    partitions = len(log.ends(replay.topics.transactions))
    for record in log.read(replay.topics.job_progress):
        progress = orjson.loads(record.value or b"")
        for part in progress["partitions"]:
            if part["topic"] == replay.topics.transactions:
                starts.setdefault(part["partition"], part["start_offset"])
        if len(starts) == partitions:
            break
    return starts

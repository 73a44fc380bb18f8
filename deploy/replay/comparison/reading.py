"""Reading of whole topics into Arrow columns, without an object for each record."""

import time

import orjson
import pyarrow as pa

from deploy.replay.comparison.columns import Ranges
from deploy.replay.errors import ReplayError
from loadtests.audit.topic_log import TopicLog
from streaming_job.log.errors import PATIENCE_S
from streaming_job.log.follower import LogFollower
from streaming_job.settings import JobSettings

MOST, MOST_BYTES, WAIT_S = 200_000, 64 << 20, 0.2
TUNING = {
    "queued.max.messages.kbytes": "131072",
    "max.partition.fetch.bytes": str(8 << 20),
    "fetch.max.bytes": str(64 << 20),
}


def values(settings: JobSettings, topic: str) -> pa.ChunkedArray:
    """Return the values of all committed records of a topic up to its present end, large_binary.

    Raises:
        ReplayError: nothing more arrives.
    """
    log = TopicLog(settings.bootstrap_servers, settings.kafka)
    first, ends = log.beginnings(topic), log.ends(topic)
    remaining = {(topic, part): end for part, end in ends.items() if first[part] < end}
    chunks: list[pa.Array] = []
    if not remaining:
        return pa.chunked_array(chunks, pa.large_binary())
    client = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers, **TUNING}
    follower = LogFollower(client, {tp: first[tp[1]] for tp in remaining})
    arrived = time.monotonic()
    try:
        follower.limit(remaining)
        while any(follower.positions[tp] < end for tp, end in remaining.items()):
            before = dict(follower.positions)
            for records in follower.take(MOST, MOST_BYTES, WAIT_S):
                chunks.append(records.values.drop_null().cast(pa.large_binary()))
            if follower.positions != before:
                arrived = time.monotonic()
            elif time.monotonic() - arrived > PATIENCE_S:
                raise ReplayError(
                    f"no more records of {topic} arrive ({follower.trouble()}); check the brokers"
                )
    finally:
        follower.close()
    return pa.chunked_array(chunks, pa.large_binary())


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

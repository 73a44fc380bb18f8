"""Finds the newest progress record of each key group on the topic, from its end backwards."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import orjson
from confluent_kafka import Consumer, Message, TopicPartition

from streaming_job.log import topic_reader
from streaming_job.progress.totals import Totals

STEPS_BACK = (100, 1_000, 10_000, 100_000, 1_000_000)
"""How far before the end of a partition records are looked for, one step after the other."""
BLIND = 100_000
"""Further back only for a job of which something has been found: its key groups write side by side."""
_BROKEN = (KeyError, TypeError, ValueError, AttributeError)


def decoded(message: Message, job_id: str) -> dict[str, Any] | None:
    """A record of a job's progress that tells its totals; None if it is none."""
    record = _parsed(message, job_id)
    return record if record is not None and _has_totals(record) else None


def newest_among(messages: Iterable[Message], job_id: str) -> tuple[dict[int, dict[str, Any]], int]:
    """The last record of each key group, and how many of the job's records were no progress.

    Cheaper than to decode each of them: totals are looked at in the last ones only.

    Args:
        messages: in the order of the log.
        job_id: of the job; records of others are passed over.
    """
    last: dict[int, dict[str, Any]] = {}
    unreadable = 0
    for message in messages:
        record = _parsed(message, job_id)
        if record is not None:
            last[record["key_group"]] = record
        else:
            unreadable += message.key() == job_id.encode()
    found = {group: record for group, record in last.items() if _has_totals(record)}
    return found, unreadable + len(last) - len(found)


def newest_by_group(
    reader: Consumer, topic: str, job_id: str, groups: Collection[int] | None = None
) -> dict[int, dict[str, Any]]:
    """The newest progress record of key groups, by group.

    A group that wrote nothing is not there, nor one that has been silent while STEPS_BACK[-1] records came.

    Args:
        reader: a consumer that joined no group (`topic_reader.consumer`); its assignment changes.
        topic: of the progress.
        job_id: of the job.
        groups: those wanted; None means all that the job has.

    Raises:
        KafkaException: no such topic, or no answer.
    """
    found: dict[int, dict[str, Any]] = {}
    places = [TopicPartition(topic, partition) for partition in topic_reader.partitions(reader, topic)]
    bounds = [topic_reader.offsets(reader, place) for place in places]
    seen_from = [end for _, end in bounds]
    for back in STEPS_BACK:
        if back > BLIND and not found:
            break
        for at, (place, (first, end)) in enumerate(zip(places, bounds, strict=True)):
            start = max(first, end - back)
            messages = _between(reader, place.topic, place.partition, start, seen_from[at])
            for group, record in newest_among(messages, job_id)[0].items():
                if group not in found or record["commit_id"] > found[group]["commit_id"]:
                    found[group] = record
            seen_from[at] = min(start, seen_from[at])
        if found and all(group in found for group in _wanted(groups, found)):
            break
    return {group: record for group, record in found.items() if groups is None or group in groups}


def _wanted(groups: Collection[int] | None, found: dict[int, dict[str, Any]]) -> Collection[int]:
    return groups if groups is not None else range(max(record["key_groups"] for record in found.values()))


def _parsed(message: Message, job_id: str) -> dict[str, Any] | None:
    """A record that could be the job's progress; its totals are not looked at."""
    if message.key() != job_id.encode():
        return None
    try:
        record: dict[str, Any] = orjson.loads(message.value() or b"")
        str(record["query_id"]), record["partitions"][:0], record["state"]["cards"], record["totals"]
        valid = 0 <= record["key_group"] < record["key_groups"] and record["commit_id"] > 0
    except _BROKEN:
        return None
    return record if valid else None


def _has_totals(record: dict[str, Any]) -> bool:
    try:
        Totals.from_json(record["totals"])
    except _BROKEN:
        return False
    return True


def _between(reader: Consumer, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
    """The records of a partition from offset `start` on that lie before `end`.

    Raises:
        KafkaException: no answer.
    """
    if start < end:
        for message in topic_reader.to_end(reader, TopicPartition(topic, partition, start)):
            if (message.offset() or 0) >= end:
                return
            yield message

"""The reader of progress records: finds the newest one of each key group, from the topic's end backwards."""

import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import orjson
from confluent_kafka import Message, TopicPartition

from streaming_job.log import follow, topic_reader
from streaming_job.log.clients import Consumer
from streaming_job.progress.totals import Totals

log = logging.getLogger(__name__)

STEPS_BACK = (100, 1_000, 10_000, 100_000)
"""Distances from the ends of all partitions, together, at which the search begins, tried in turn; then each
is ten times the one before, until the beginnings."""
FEATURE_COUNTS = "feature_counts"
"""Field that only some records carry (`progress.writer`)."""
BLIND = STEPS_BACK[-1]
"""`first_within` of a search for a job that may be new, or need not be found unless it runs: the rest of the
topic may be all that other jobs have ever written."""
R = TypeVar("R", bound=Mapping[str, Any])
_BROKEN = (KeyError, TypeError, ValueError, AttributeError)


def decoded(message: Message, job_id: str) -> dict[str, Any] | None:
    """Parse a progress record of a job; None if the message is not one, or has no valid totals."""
    record = _parsed(message, job_id)
    return record if record is not None and _has_totals(record) else None


def newest_among(messages: Iterable[Message], job_id: str) -> tuple[dict[int, dict[str, Any]], int]:
    """Return the last record of each key group, and the number of the job's unreadable records.

    This is cheaper than `decoded` for each message: totals are checked in the last records only. A last
    record without feature counts gets those of an earlier record of its group. A group whose last record has
    no valid totals is left out, and this record counts as unreadable.

    Args:
        messages: in the order of the log.
        job_id: id of the job; records of other jobs are ignored.
    """
    last: dict[int, dict[str, Any]] = {}
    unreadable = 0
    for message in messages:
        record = _parsed(message, job_id)
        if record is not None:
            group = record["key_group"]
            last[group] = with_feature_counts(record, last.get(group))
        else:
            unreadable += message.key() == job_id.encode()
    readable = {group: record for group, record in last.items() if _has_totals(record)}
    return readable, unreadable + len(last) - len(readable)


def with_feature_counts(record: dict[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a record, with the feature counts of an earlier one of its group if it has none itself."""
    if before is not None and FEATURE_COUNTS not in record and FEATURE_COUNTS in before:
        record[FEATURE_COUNTS] = before[FEATURE_COUNTS]
    return record


def newest_by_group(
    reader: Consumer,
    topic: str,
    job_id: str,
    groups: Collection[int] | None = None,
    *,
    first_within: int | None = None,
) -> dict[int, dict[str, Any]]:
    """Return the newest progress record of key groups, by group; groups without one are left out.

    The search goes back to the beginning of the topic if it has to: other jobs may have written any number of
    records since.

    Args:
        reader: a consumer that joined no group (`clients.reader`); its assignment changes.
        groups: the groups to find; None means all groups of the job.
        first_within: number of last offsets in which the job's first record has to be found; else the search
            ends, with a warning if the topic has more. None: no such limit.

    Raises:
        KafkaException: no such topic, no answer, or a partition cannot be read.
    """
    newest: dict[int, dict[str, Any]] = {}
    bounds = topic_reader.bounds(reader, topic)
    seen_from = {partition: end for partition, (_, end) in bounds.items()}
    longest = max((end - first for first, end in bounds.values()), default=0)
    for back in _distances(longest * len(bounds)):
        if first_within is not None and back > first_within and not newest:
            log.warning(
                "no progress of job %s is among the last %d offsets of %s; older ones were not read",
                job_id,
                first_within,
                topic,
            )
            break
        for partition, (first, end) in bounds.items():
            start = max(first, end - math.ceil(back / len(bounds)))
            messages = follow.to_end(reader, TopicPartition(topic, partition, start), seen_from[partition])
            for group, record in newest_among(messages, job_id)[0].items():
                other = newest.get(group, record)
                before, last = sorted((record, other), key=lambda either: int(either["commit_id"]))
                newest[group] = with_feature_counts(last, before)
            seen_from[partition] = min(start, seen_from[partition])
        if newest and all(group in newest for group in _wanted(groups, newest)):
            break
    if groups is None:
        return of_newest_query(newest)
    return {group: record for group, record in newest.items() if group in groups}


def of_newest_query(records: Mapping[int, R]) -> dict[int, R]:
    """Return the records of the query that has written last: a takeover leaves those of the predecessor."""
    newest = max(records.values(), key=lambda record: int(record["commit_id"]), default=None)
    return {
        group: record
        for group, record in records.items()
        if newest is not None and record["query_id"] == newest["query_id"]
    }


def _distances(longest: int) -> Iterator[int]:
    """Yield the distances from the end at which the search begins; the last is at least `longest`."""
    back = STEPS_BACK[-1]
    for step in STEPS_BACK:
        yield step
        if step >= longest:
            return
    while back < longest:
        back *= 10
        yield back


def _wanted(groups: Collection[int] | None, newest: dict[int, dict[str, Any]]) -> Collection[int]:
    if groups is not None:
        return groups
    return range(max(record["key_groups"] for record in of_newest_query(newest).values()))


def _parsed(message: Message, job_id: str) -> dict[str, Any] | None:
    """Parse a record without checking its totals; None if it is no progress record of the job."""
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

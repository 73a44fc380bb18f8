"""Which of the job's Kafka transactions wrote a record, and of which input record it tells."""

import json
from typing import NamedTuple

from loadtests.oracle import Record

Place = tuple[str, int]
"""(topic, partition)."""


class Commit(NamedTuple):
    """Names one Kafka transaction of the job."""

    query_id: str
    """Of the checkpoint; a restored one keeps it."""
    key_group: int
    commit_id: int
    """1, 2, ... in each key group, through all restarts."""

    def __str__(self) -> str:
        """For reports."""
        return f"commit {self.commit_id} of key group {self.key_group}"


def commit_of(record: Record) -> Commit:
    """The commit that wrote a record, by its headers; one that never was if they do not tell."""
    headers = dict(record.headers)
    try:
        return Commit(
            (headers["query_id"] or b"").decode(),
            int(headers["key_group"] or b""),
            int(headers["commit_id"] or b""),
        )
    except (KeyError, ValueError):
        return Commit("", -1, -1)


def source(record: Record) -> tuple[int, int]:
    """Partition and offset of an alert's transaction; -1 if it does not tell."""
    try:
        source = json.loads(record.value or b"")["source"]
        return source["partition"], source["offset"]
    except (ValueError, KeyError, TypeError):
        return -1, -1


def source_of_letter(record: Record) -> tuple[Place, int]:
    """((topic, partition), offset) of a dead letter's record; -1 if it does not tell."""
    try:
        letter = json.loads(record.value or b"")
        return (str(letter["topic"]), int(letter["partition"])), int(letter["offset"])
    except (ValueError, KeyError, TypeError):
        return ("", -1), -1

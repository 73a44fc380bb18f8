"""Commit and input record of an output record, from its headers and its value."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from loadtests.audit.content import content_of
from loadtests.oracle import Record

RELEASE = re.compile(r"[^+ ]+\+[0-9a-f]{8}")
Source = tuple[str, int, int]
"""(topic, partition, offset) of an input record."""


class Commit(NamedTuple):
    """Identifies one Kafka transaction of the job."""

    query_id: str
    """Query id of the checkpoint; a restored checkpoint keeps it."""
    key_group: int
    commit_id: int
    """1, 2, ... in each key group, continued after restarts."""

    def __str__(self) -> str:
        """Return the name used in reports."""
        return f"commit {self.commit_id} of key group {self.key_group}"


def commit_of(record: Record) -> Commit:
    """Return the commit that wrote a record; Commit("", -1, -1) if a header is missing or malformed."""
    headers = dict(record.headers)
    try:
        return Commit(
            (headers["query_id"] or b"").decode(),
            int(headers["key_group"] or b""),
            int(headers["commit_id"] or b""),
        )
    except (KeyError, ValueError):
        return Commit("", -1, -1)


def is_seam(progress: Mapping[str, Any]) -> bool:
    """Return whether a progress record begins the output of a job that took over; it decides nothing."""
    return "takeover" in progress and progress["takeover"]["commit_id"] == progress["commit_id"]


def release_of(record: Record) -> str | None:
    """Return the release that an output record's header names; None without a valid header."""
    try:
        name = (dict(record.headers).get("release") or b"").decode()
    except ValueError:
        return None
    return name if RELEASE.fullmatch(name) else None


def source_in(content: Any) -> Source:
    """Return the input record of a parsed output record; a dead letter names it without `source`.

    Raises:
        KeyError, TypeError, ValueError: it names none.
    """
    source = content.get("source", content) if isinstance(content, dict) else content
    return str(source["topic"]), int(source["partition"]), int(source["offset"])


def source_of(record: Record) -> Source:
    """Return the input record of an output record; ("", -1, -1) if it names none."""
    return source_of_value(record.value)


def source_of_value(value: bytes | None) -> Source:
    """Return the input record of an output record's value; ("", -1, -1) if it names none."""
    try:
        return source_in(content_of(value))
    except (ValueError, KeyError, TypeError):
        return "", -1, -1

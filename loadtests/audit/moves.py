"""Where a job's transactions were and are: a takeover may move them to other partitions, or another topic."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from loadtests.audit.commits import is_seam
from loadtests.oracle import Record
from streaming_job.log.partitioner import Layout
from streaming_job.log.records import PartitionId


class Drained(NamedTuple):
    """Where the transactions were before a takeover moved them, and where they ended."""

    commit_id: int
    """Number of the takeover."""
    layout: Layout
    ends: tuple[int, ...]
    """Offset after the last decided record, by partition."""


class Stretch(NamedTuple):
    """A part of the transactions that was decided by one layout."""

    layout: Layout
    starts: dict[int, int]
    """First offset, by partition; without an entry: the first."""
    ends: dict[int, int]
    """First offset that is not part of it, by partition; a partition without one is not audited."""
    has_facts: bool = True
    """Whether a job that keeps merchant facts now has kept them."""


class FactsBegun(NamedTuple):
    """The takeover that has turned merchant facts on."""

    commit_id: int
    transactions: dict[int, int]
    """Offset of the first transaction decided with facts, by partition."""
    labels: dict[PartitionId, dict[int, int]]
    """Where the key groups began to fold labels: by partition of their topics the offset by key group."""


def drained_by(row: Mapping[str, Any]) -> Drained | None:
    """Return the move of a progress record with which a job begins; None if it does not move the cards.

    Raises:
        KeyError, TypeError, ValueError: the record is invalid.
    """
    if not is_seam(row) or "drained" not in row["takeover"]:
        return None
    drained = row["takeover"]["drained"]
    ends = tuple(map(int, drained["ends"]))
    return Drained(int(row["takeover"]["commit_id"]), Layout.from_json(drained["layout"]), ends)


def moves_in(progress: Iterable[Record], job_id: str) -> list[Drained]:
    """Return the moves of a job, oldest first, from its progress records; those of other jobs are ignored."""
    moves = set()
    for record in progress:
        if record.key == job_id.encode() and b'"drained"' in (record.value or b""):
            moves.add(drained_by(json.loads(record.value or b"")))
    return sorted(move for move in moves if move is not None)


def stretches(moves: Sequence[Drained], layout: Layout, ends: Mapping[int, int]) -> list[Stretch]:
    """Return all stretches of a job's transactions, oldest first.

    Args:
        moves: oldest first.
        layout: that of the newest stretch.
        ends: its ends, by partition.
    """
    found: list[Stretch] = []
    for place, place_ends in (
        *((move.layout, dict(enumerate(move.ends))) for move in moves),
        (layout, dict(ends)),
    ):
        before = found[-1] if found and found[-1].layout.topic == place.topic else None
        found.append(Stretch(place, dict(before.ends) if before else {}, place_ends))
    return found


def split(parts: Sequence[Stretch], moves: Sequence[Drained], begun: FactsBegun | None) -> list[Stretch]:
    """Split the stretch in which merchant facts were turned on, if they were."""
    if begun is None:
        return list(parts)
    at = sum(move.commit_id <= begun.commit_id for move in moves)
    before = [part._replace(has_facts=False) for part in parts[: at + 1]]
    firsts = {part: first for part, first in begun.transactions.items() if part in parts[at].ends}
    before[at] = before[at]._replace(ends={p: min(first, parts[at].ends[p]) for p, first in firsts.items()})
    return [*before, parts[at]._replace(starts={**parts[at].starts, **firsts}), *parts[at + 1 :]]


def retired(moves: Sequence[Drained], layout: Layout) -> dict[PartitionId, int]:
    """Return the ends of the topics that the transactions have left, by partition."""
    topics = [*(move.layout.topic for move in moves), layout.topic][1:]
    return {
        (move.layout.topic, partition): end
        for move, next_topic in zip(moves, topics, strict=True)
        if move.layout.topic != next_topic
        for partition, end in enumerate(move.ends)
    }


def classes(parts: Sequence[Stretch]) -> int:
    """Return a number c: cards in partitions of different remainders modulo c are different cards."""
    if len({part.layout.partitioner for part in parts}) > 1:
        return 1
    return math.gcd(*(part.layout.partitions for part in parts))

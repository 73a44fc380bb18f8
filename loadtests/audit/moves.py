"""Where a job's transactions were and are: a takeover may move them to other partitions, or another topic."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from loadtests.audit.commits import is_seam
from loadtests.audit.content import content_of
from loadtests.oracle import Record
from streaming_job.log.losses import NOTHING_LOST, Losses, losses_in
from streaming_job.log.partitioner import Layout
from streaming_job.log.records import PartitionId
from streaming_job.progress.record import ROLLOUT_TOPICS


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
    losses: Losses = NOTHING_LOST
    """What the log had lost when the state was first read from it."""
    rollouts: str | None = ""
    """Topic of the rollouts that have decided; empty: that of the settings; None: not known yet."""


class Seam(NamedTuple):
    """A takeover, and how transactions are decided after it."""

    commit_id: int
    """Number of the takeover; 0: the job's beginning."""
    firsts: dict[PartitionId, int]
    """First offset after it, by partition of all inputs; empty: of the job's beginning."""
    has_facts: bool = True
    losses: Losses = NOTHING_LOST
    rollouts: str | None = ""
    """See `Stretch`."""


class Seams:
    """The takeovers of a job, and its beginning, from progress records in any order."""

    def __init__(self) -> None:
        self._found: dict[int, Seam] = {}
        self._named: dict[int, dict[str, Any]] = {}
        """By takeover, the fields that only records of key group 0 name."""

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a progress record.

        Raises:
            KeyError, TypeError, ValueError: it is invalid.
        """
        number = int(row["takeover"]["commit_id"]) if "takeover" in row else 0
        seam = self._found.setdefault(number, Seam(number, {}))
        if is_seam(row):
            seam.firsts.update(
                {(str(p["topic"]), int(p["partition"])): int(p["end_offset"]) for p in row["partitions"]}
            )
        if row["key_group"] == 0:
            *_, rollouts = row.get(ROLLOUT_TOPICS) or [""]
            self._named[number] = {"losses": losses_in(row), "rollouts": str(rollouts)}

    def in_order(self) -> list[Seam]:
        """Return the beginning and the takeovers, oldest first; at least one.

        What came before the oldest known record of key group 0 counts as decided as by its job. After the
        newest one, takeovers of which only other key groups' records are visible yet are of unknown rollouts.
        """
        newest, seams = max(self._named, default=0), list[Seam]()
        how = {**self._named.get(newest, {}), "rollouts": None}
        for number, seam in sorted(self._found.items(), reverse=True):
            if number <= newest:
                how = self._named.get(number, how if self._named else {})
            seams.append(seam._replace(**how))
        *others, first = seams or [Seam(0, {})]
        return [first._replace(commit_id=0, firsts={}), *reversed(others)]


class FactsBegun(NamedTuple):
    """The takeover that has turned merchant facts on."""

    commit_id: int
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
            moves.add(drained_by(content_of(record.value)))
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


def split(parts: Sequence[Stretch], moves: Sequence[Drained], seams: Sequence[Seam]) -> list[Stretch]:
    """Split the stretches at the seams, and tell how each part was decided.

    Args:
        parts: see `stretches`.
        moves: oldest first.
        seams: oldest first, beginning with the job's.
    """
    left, found = list(parts), list[Stretch]()
    for seam in reversed(seams):
        left, after = _divided(left, moves, seam) if seam.commit_id else ([], left)
        found = [part._replace(**_how(seam)) for part in after] + found
    return found


def _how(seam: Seam) -> dict[str, Any]:
    """Return how transactions are decided after a seam, as fields of stretches."""
    return {"has_facts": seam.has_facts, "losses": seam.losses, "rollouts": seam.rollouts}


def _divided(
    parts: Sequence[Stretch], moves: Sequence[Drained], seam: Seam
) -> tuple[list[Stretch], list[Stretch]]:
    """Divide the oldest stretches at a seam, which lies in one of them."""
    at = sum(move.commit_id <= seam.commit_id for move in moves)
    part = parts[at]
    # a partition of which the seam is not known yet counts as before it
    firsts = {number: seam.firsts.get((part.layout.topic, number), end) for number, end in part.ends.items()}
    before = part._replace(ends={number: min(first, part.ends[number]) for number, first in firsts.items()})
    after = part._replace(starts={**part.starts, **firsts})
    return [*parts[:at], before], [after, *parts[at + 1 :]]


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

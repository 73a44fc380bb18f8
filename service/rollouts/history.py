"""The rollout topic as it stands: every event, and the line of champions and trials that follows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from models.rollouts import events, machine
from models.rollouts.events import Event
from models.rollouts.machine import ConflictError, Line
from streaming_job.contracts import ContractError


@dataclass(frozen=True)
class Record:
    """A record of the topic, as it was read."""

    offset: int
    timestamp: int
    """Kafka's, ms: from then on its events hold."""
    value: bytes


@dataclass(frozen=True)
class Entry:
    """An event of the topic."""

    offset: int
    """Of its record; a record of version 1 may hold two events."""
    timestamp: int
    """Kafka's, ms: from then on it holds."""
    event: Event
    refused: str = ""
    """Why it changed nothing (a Reason's value); empty where it did."""
    repeats: bool = False
    """Whether it says again what an accepted event has said."""


@dataclass(frozen=True)
class History:
    """The topic up to some offset."""

    line: Line = field(default_factory=Line)
    entries: tuple[Entry, ...] = ()
    """In the order of the log."""
    unreadable: int = 0
    """Records that are no rollout events."""
    end: int = 0
    """Offset from which on nothing has been read."""

    def with_records(self, records: Iterable[Record], set_aside: Mapping[int, str]) -> "History":
        """The history with more of the topic.

        Args:
            records: in the order of their offsets; those below `end` are passed over.
            set_aside: by offset of the records that the job does not use: the Reason's value.
        """
        new: list[Entry] = []
        unreadable, end = self.unreadable, self.end
        for record in records:
            if record.offset < end:
                continue
            end = record.offset + 1
            try:
                found = events.read(record.value)
            except ContractError:
                unreadable += 1
                continue
            new += [Entry(record.offset, record.timestamp, event) for event in found]
        line, folded = _folded(self.line, new, set_aside)
        return History(line, (*self.entries, *folded), unreadable, end)

    def refolded(self, set_aside: Mapping[int, str]) -> "History":
        """The same topic, of which the job has said by now that it does not use some records."""
        line, folded = _folded(Line(), self.entries, set_aside)
        return replace(self, line=line, entries=tuple(folded))

    def of(self, rollout_id: str) -> tuple[Entry, ...]:
        """The events of a rollout, in the order of the log."""
        return tuple(entry for entry in self.entries if entry.event.rollout_id == rollout_id)

    def accepted(self, rollout_id: str) -> tuple[Entry, ...]:
        """Those of a rollout that changed something."""
        return tuple(entry for entry in self.of(rollout_id) if not entry.refused and not entry.repeats)


def _folded(line: Line, entries: Iterable[Entry], set_aside: Mapping[int, str]) -> tuple[Line, list[Entry]]:
    """What a line comes to, and which events changed it."""
    folded = []
    for entry in entries:
        refused, repeats = set_aside.get(entry.offset, ""), False
        if not refused:
            try:
                after = machine.apply(line, entry.event)
                repeats, line = after is line, after
            except ConflictError as fault:
                refused = fault.reason.value
        folded.append(replace(entry, refused=refused, repeats=repeats))
    return line, folded

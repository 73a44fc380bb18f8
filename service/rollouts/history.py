"""History of the rollout topic: every event, and the resulting state of champions and trials (`Line`)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from models.rollouts import machine, reading
from models.rollouts.events import Event
from models.rollouts.machine import ConflictError
from models.rollouts.state import Line
from streaming_job.contracts import ContractError


@dataclass(frozen=True)
class Record:
    """A record of the topic."""

    offset: int
    timestamp: int
    """Kafka timestamp, ms, from which on its events are in force."""
    value: bytes


@dataclass(frozen=True)
class Entry:
    """An event of the topic."""

    offset: int
    """Offset of its record."""
    timestamp: int
    """Kafka timestamp, ms, from which on the event is in force."""
    event: Event
    refused: str = ""
    """Why the event was refused, a value of `contracts.Reason`; empty if it was not."""
    repeats: bool = False
    """Whether it repeats an accepted event."""


@dataclass(frozen=True)
class History:
    """The rollout topic as far as it has been read, and the state of the rollouts that follows from it."""

    line: Line = field(default_factory=Line)
    entries: tuple[Entry, ...] = ()
    """Events in log order."""
    unreadable: int = 0
    """Number of records that are no rollout events."""
    end: int = 0
    """Offset of the next record to read."""

    def with_records(self, records: Iterable[Record], set_aside: Mapping[int, str]) -> "History":
        """Return the history extended by further records of the topic.

        Args:
            records: records in the order of their offsets; those below `end` are skipped.
            set_aside: offset of a record that the job does not use -> a value of `contracts.Reason`.
        """
        new: list[Entry] = []
        unreadable, end = self.unreadable, self.end
        for record in records:
            if record.offset < end:
                continue
            end = record.offset + 1
            try:
                event = reading.read(record.value)
            except ContractError:
                unreadable += 1
                continue
            new.append(Entry(record.offset, record.timestamp, event))
        line, folded = _folded(self.line, new, set_aside)
        return History(line, (*self.entries, *folded), unreadable, end)

    def refolded(self, set_aside: Mapping[int, str]) -> "History":
        """Return the history that follows from the same records with another `set_aside`."""
        line, folded = _folded(Line(), self.entries, set_aside)
        return replace(self, line=line, entries=tuple(folded))

    @property
    def all_accepted(self) -> tuple[Entry, ...]:
        """The accepted events of all rollouts, without repetitions."""
        return tuple(entry for entry in self.entries if not entry.refused and not entry.repeats)

    def of(self, rollout_id: str) -> tuple[Entry, ...]:
        """Return the events of a rollout, in log order."""
        return tuple(entry for entry in self.entries if entry.event.rollout_id == rollout_id)

    def accepted(self, rollout_id: str) -> tuple[Entry, ...]:
        """Return the accepted events of a rollout, without repetitions."""
        return tuple(entry for entry in self.all_accepted if entry.event.rollout_id == rollout_id)


def _folded(line: Line, entries: Iterable[Entry], set_aside: Mapping[int, str]) -> tuple[Line, list[Entry]]:
    """Apply entries to a line; return the new line, and the entries with `refused` and `repeats` set."""
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

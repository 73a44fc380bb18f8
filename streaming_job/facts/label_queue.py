"""Labels that have been read, and wait until the transactions that arrived before them are decided."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from streaming_job.dead_letters.record import DeadLetter
from streaming_job.decode.labels import Label
from streaming_job.log.records import Offsets, Place


@dataclass(frozen=True)
class _Waiting:
    due_at: int
    """Greatest arrival of its partition up to it, ms: a partition's labels are taken in order."""
    item: Label | DeadLetter


class LabelQueue:
    """Labels of a key group's cards, by partition in the order of offsets."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._waiting: dict[Place, deque[_Waiting]] = {}

    def add(self, found: Iterable[Label | DeadLetter]) -> None:
        """Let labels wait, each partition's in the order of offsets."""
        for item in found:
            line = self._waiting.setdefault((item.topic, item.partition), deque())
            line.append(_Waiting(max(item.arrival, line[-1].due_at if line else item.arrival), item))

    def is_due(self, clock: int) -> bool:
        """Whether any label arrived before a time, ms."""
        return any(line and line[0].due_at < clock for line in self._waiting.values())

    def due(self, clock: int) -> list[Label | DeadLetter]:
        """Take the labels that arrived before a time (ms), in the order of their arrival."""
        found: list[_Waiting] = []
        for line in self._waiting.values():
            while line and line[0].due_at < clock:
                found.append(line.popleft())
        found.sort(key=lambda waiting: (waiting.due_at, waiting.item.topic, waiting.item.partition))  # stable
        return [waiting.item for waiting in found]

    def positions(self, read: Offsets) -> Offsets:
        """The offset of the first label that waits, by partition; where none does, as far as was read."""
        first = {place: line[0].item.offset for place, line in self._waiting.items() if line}
        return {place: first.get(place, offset) for place, offset in read.items()}

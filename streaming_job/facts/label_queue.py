"""The queue of labels that wait until the transactions that arrived before them are decided."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from streaming_job.dead_letters.record import DeadLetter
from streaming_job.decode.labels import Label
from streaming_job.log.records import Offsets, PartitionId


@dataclass(frozen=True)
class _Waiting:
    due_at: int
    """The label's arrival, or `due_at` of the label that waits before it in its partition if that is greater,
    ms. So no label is due before an earlier one of its partition, even if a broker's clock was set back."""
    item: Label | DeadLetter


class LabelQueue:
    """The waiting labels of a key group's cards, by partition in the order of offsets."""

    def __init__(self, topics: Sequence[str]) -> None:
        """Create an empty queue.

        Args:
            topics: of labels; of two that arrive at the same time, that of the earlier topic is due first.
        """
        self._topics = topics
        self._waiting: dict[PartitionId, deque[_Waiting]] = {}

    def add(self, items: Iterable[Label | DeadLetter]) -> None:
        """Add labels, each partition's in the order of offsets."""
        for item in items:
            queue = self._waiting.setdefault((item.topic, item.partition), deque())
            queue.append(_Waiting(max(item.arrival, queue[-1].due_at if queue else item.arrival), item))

    def is_due(self, clock: int) -> bool:
        """Return whether a waiting label is due at a time, ms: its `due_at` is earlier."""
        return any(queue and queue[0].due_at < clock for queue in self._waiting.values())

    def waiting(self, clock: int) -> Iterator[tuple[int, Label | DeadLetter]]:
        """Yield `due_at` of each label that is due at a time, ms, and the label; it stays in the queue."""
        for queue in self._waiting.values():
            for each in takewhile(lambda each: each.due_at < clock, queue):
                yield each.due_at, each.item

    def due(self, clock: int) -> list[Label | DeadLetter]:
        """Remove and return the labels that are due at a time, ms, in the order of `due_at`."""
        due: list[_Waiting] = []
        for queue in self._waiting.values():
            while queue and queue[0].due_at < clock:
                due.append(queue.popleft())
        rank = {topic: number for number, topic in enumerate(self._topics)}
        due.sort(key=lambda each: (each.due_at, rank[each.item.topic], each.item.partition))  # stable
        return [waiting.item for waiting in due]

    def positions(self, read: Offsets) -> Offsets:
        """Return by partition the offset of the first waiting label, or the one in `read` if none waits."""
        first = {tp: queue[0].item.offset for tp, queue in self._waiting.items() if queue}
        return {tp: first.get(tp, offset) for tp, offset in read.items()}

"""Simulated records in batches of a given size, instead of the stream's own blocks."""

from collections.abc import Iterable, Iterator

from loadtests.simulator.batch import EventBatch


def regrouped(blocks: Iterable[EventBatch], size: int) -> Iterator[EventBatch]:
    """Yield the same records in batches of `size`; the last may be shorter."""
    pending: list[EventBatch] = []
    for block in blocks:
        pending.append(block)
        if sum(map(len, pending)) >= size:
            merged = EventBatch.concat(pending)
            cut = len(merged) - len(merged) % size
            yield from (merged.take(slice(at, at + size)) for at in range(0, cut, size))
            pending = [merged.take(slice(cut, None))]
    if pending and any(map(len, pending)):
        yield EventBatch.concat(pending)

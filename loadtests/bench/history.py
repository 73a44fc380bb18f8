"""Transactions of the last days, as the history of many cards or as a backlog."""

import time
from collections.abc import Callable, Iterator
from math import inf

from loadtests.faults.installation import Installation
from loadtests.rig.pace import Pace
from loadtests.rig.send import Sender
from loadtests.simulator.batch import EventBatch
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.timeline import timeline
from loadtests.simulator.transactions import Stream
from streaming_job.log.clients import Address

SPAN_S = 6 * 86_400.0
"""Event time that the transactions span by default, seconds; less than the allowed lateness."""
_AT_ONCE = {"transactional.id": "bench-history"}


def rate(events: int, span_s: float = SPAN_S) -> float:
    """Return the rate of a history of `events` transactions, per second of event time."""
    return events / span_s


class History:
    """Transactions evenly spread over a span that ends now, sent in parts, with past Kafka timestamps.

    The topics must accept such timestamps, see `archive` of `rig.RigOptions`.
    """

    def __init__(self, installed: Installation, events: int, span_s: float = SPAN_S) -> None:
        self._installed = installed
        self._rate = rate(events, span_s)
        self._start_ms = int((time.time() - span_s) * 1_000)
        stream = Stream(installed.world, self._rate, self._start_ms, disturbances=Disturbances.none())
        self._sent = 0
        self._blocks = stream.blocks(events=events)
        self._cut: EventBatch | None = None
        """Rest of the block in which the last part ended."""

    def send(
        self,
        events: int,
        *,
        per_second: float = inf,
        at_once: bool = False,
        meanwhile: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Send the next part.

        Args:
            per_second: transactions per real second; default: as fast as possible.
            at_once: whether to send in one Kafka transaction, which read_committed consumers see all at once.
            meanwhile: called a few times a second, with the number of this part's transactions sent so far.
        """
        brokers = Address(self._installed.stack.bootstrap_servers)
        sender = Sender(brokers, fixed=_AT_ONCE if at_once else None, stamped=True)
        begin_ms = self._start_ms + 1_000 * self._sent / self._rate
        pace = Pace(sender.clock.now_ms(), begin_ms, per_second / self._rate)
        records = timeline(self._next(events), None, self._installed.topics, drain=False)
        sender.send(records, pace, meanwhile=lambda: meanwhile(sender.sent.total()))
        self._sent += events

    def _next(self, events: int) -> Iterator[EventBatch]:
        while events:
            block = next(self._blocks) if self._cut is None else self._cut
            part = block.take(slice(0, events))
            self._cut = block.take(slice(events, None)) if len(block) > events else None
            events -= len(part)
            yield part

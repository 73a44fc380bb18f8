"""Transactions of the last days: the past of many cards, or a backlog to work off."""

import time
from collections.abc import Callable, Iterator
from math import inf

from deploy.local import topics as broker
from loadtests.faults.installation import Installation
from loadtests.simulator.batch import EventBatch
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.kafka_feed import KafkaFeed
from loadtests.simulator.pacing import Pace
from loadtests.simulator.timeline import timeline
from loadtests.simulator.transactions import Stream

SPAN_S = 6 * 86_400
"""Event time that they span: less than the allowed lateness."""
_AT_ONCE = {"transactional.id": "bench-history"}


def rate(events: int) -> float:
    """Transactions per second of event time, of so many."""
    return events / SPAN_S


class History:
    """So many transactions, evenly spread over `SPAN_S` until now, sent in parts one after the other."""

    def __init__(self, installed: Installation, events: int) -> None:
        self._installed = installed
        # each arrived when it happened: stamped by the broker now, they would be a burst of every card
        broker.create(installed.stack.bootstrap_servers, installed.topics, replay=True)
        self._rate = rate(events)
        self._start_ms = int((time.time() - SPAN_S) * 1_000)
        stream = Stream(installed.world, self._rate, self._start_ms, disturbances=Disturbances.none())
        self._sent = 0
        self._blocks = stream.blocks(events=events)
        self._cut: EventBatch | None = None
        """What is left of the block in which the last part ended."""

    def send(
        self,
        events: int,
        *,
        per_second: float = inf,
        at_once: bool = False,
        meanwhile: Callable[[KafkaFeed], None] | None = None,
    ) -> None:
        """Send the next ones.

        Args:
            events: how many.
            per_second: how many in a real second; default: as fast as it goes.
            at_once: in one Kafka transaction: who reads committed records sees none before all are there.
            meanwhile: called at least once a second, with what sends.

        Raises:
            FeedError: no broker, or a record was not delivered.
        """
        feed = KafkaFeed(
            self._installed.stack.bootstrap_servers, kafka=_AT_ONCE if at_once else None, archive=True
        )
        begin_ms = self._start_ms + 1_000 * self._sent / self._rate
        pace = Pace(time.time() * 1_000, begin_ms, per_second / self._rate)
        records = timeline(self._next(events), None, self._installed.topics, drain=False)
        feed.run(records, pace, progress=meanwhile)
        self._sent += events

    def _next(self, events: int) -> Iterator[EventBatch]:
        while events:
            block = next(self._blocks) if self._cut is None else self._cut
            part = block.take(slice(0, events))
            self._cut = block.take(slice(events, None)) if len(block) > events else None
            events -= len(part)
            yield part

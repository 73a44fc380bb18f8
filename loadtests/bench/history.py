"""Transactions of the last days, sent at once: a backlog to work off, or the past of many cards."""

import time

from loadtests.faults.installation import Installation
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.kafka_feed import KafkaFeed
from loadtests.simulator.pacing import Pace
from loadtests.simulator.timeline import timeline
from loadtests.simulator.transactions import Stream

SPAN_S = 6 * 86_400
"""Event time that they span: less than the allowed lateness."""


def rate(events: int) -> float:
    """Transactions per second of event time, of so many."""
    return events / SPAN_S


def send(installed: Installation, events: int) -> None:
    """Send so many transactions, evenly spread over `SPAN_S` until now, as fast as it goes."""
    start_ms = int((time.time() - SPAN_S) * 1_000)
    stream = Stream(installed.world, rate(events), start_ms, disturbances=Disturbances.none())
    feed = KafkaFeed(installed.stack.bootstrap_servers)
    blocks = stream.blocks(events=events)
    feed.run(timeline(blocks, None, installed.topics, drain=False), Pace(0.0, 0.0, float("inf")))

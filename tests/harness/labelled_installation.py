"""An installation whose log is an archive with labels, reversals and profile changes, in compressed time.

A label takes effect an hour or two after its arrival; records keep the archive's arrivals to avoid the wait.
"""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from feature_store.catalogue import DAY_MS, HOUR_MS, MINUTE_MS
from feature_store.kernels.hashing import hash_strings
from feature_store.merchants.facts import merchant_hash
from harness.job_world import World
from harness.labelled_world import labelled_world
from harness.log_world import START
from loadtests.faults.errors import FaultError
from loadtests.faults.installation import Installation, trained
from loadtests.oracle import Record
from loadtests.simulator.rollouts import publish
from models.policy import Policy
from models.rollouts.events import installation
from streaming_job.contracts.topics import Topics

SEED, CARDS, MERCHANTS = 0, 40, 8
TOGETHER_MS = 5 * MINUTE_MS
"""Span of arrivals sent together; the job tolerates clocks as far apart (`facts.clock.SLACK_MS`)."""
DEFAULT = Topics()


class LabelledInstallation(Installation):
    """A job that keeps merchant facts, with a policy that makes each transaction an alert."""

    def __init__(self, stack: Endpoints, topics: Topics, directory: Path, records: int) -> None:
        """Create topics that take the archive's arrivals, and roll out the policy.

        Args:
            topics: topic names; the profiles get a topic of their own, because Debezium's has today's times.
            directory: gets checkpoint, working copies and logs.
            records: length of the archive in records, without the changes of profiles.
        """
        topics = topics.model_copy(update={"profiles": topics.transactions + "-profiles"})
        super().__init__(
            stack, topics, directory, merchant_facts=True, label_delay_ms=DAY_MS, arrival="create"
        )
        broker.create(stack.bootstrap_servers, topics, replay=True)
        begin = START - HOUR_MS
        model = trained(stack.mlflow_tracking_uri).ref
        events = installation(model, Policy(0.0, 10_000), "everything", "test", begin)
        publish(events, stack.bootstrap_servers, topics.model_rollouts, timestamp_ms=begin)
        self._archive: Iterator[Record] = iter(archive(records).in_order())
        self._sent_until = 0

    def send(self, events: int, **disturbances: float) -> None:
        """Send the next records of the archive; it has its own disturbances, so `disturbances` is ignored."""
        kinds = {getattr(DEFAULT, name): getattr(self.topics, name) for name in Topics.model_fields}
        records = list(islice(self._archive, events))
        if len(records) < events:
            raise FaultError("the archive is at its end; make it longer")
        for record in records:
            if record.topic == DEFAULT.model_rollouts:
                continue
            if record.timestamp > self._sent_until + TOGETHER_MS:
                self.flush()
                self._sent_until = record.timestamp
            self._producer.produce(
                kinds[record.topic], record.key, record.value, record.partition, record.timestamp
            )
            self.sent += record.topic == DEFAULT.transactions
        self.flush()

    def alerts(self) -> list[dict[str, Any]]:
        """All alerts: one for each accepted transaction."""
        return [json.loads(record.value or b"") for record in self.read(self.topics.fraud_alerts)]

    def facts(self) -> list[dict[str, Any]]:
        """All merchant facts, in the order of the log."""
        return [json.loads(record.value or b"") for record in self.read(self.topics.merchant_facts)]


def archive(records: int) -> World:
    """Days of a few cards and merchants, with changes of the cards' profiles."""
    world = labelled_world(SEED, records, 2, cards=CARDS, merchants=MERCHANTS)
    last = world.transactions[-1].timestamp - START
    for number in range(records // 40):
        at, card = last * number // (records // 40), f"c{number % CARDS}"
        world.profile("u", at, card, status=("active", "blocked")[number % 3 == 0])
    return world


def payments(alerts: list[dict[str, Any]]) -> Counter[tuple[int, int]]:
    """Accepted transactions by merchant hash and arrival hour."""
    hashes = merchant_hash(hash_strings(pa.array([alert["merchant_id"] for alert in alerts], pa.string()))[0])
    hours = [alert["arrival_time"] // HOUR_MS for alert in alerts]
    return Counter(zip(hashes.tolist(), hours, strict=True))

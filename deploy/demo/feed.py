"""The load of a demo: simulated traffic with profile changes, or a replayed file; in background threads."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

import numpy as np
from confluent_kafka import KafkaException, TopicPartition

from deploy.demo import compromise
from deploy.demo.merchant_watch import MerchantWatch
from deploy.demo.options import Options
from deploy.local.stack import Endpoints
from feature_store.errors import FraudError
from loadtests.rig.pace import Pace
from loadtests.rig.send import Sender
from loadtests.simulator import destination
from loadtests.simulator.chargebacks import Chargebacks
from loadtests.simulator.churn import ProfileChurn, ProfileFeed
from loadtests.simulator.replay import Replay
from loadtests.simulator.timeline import Records, timeline
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from service.background import Background
from streaming_job.contracts.topics import Topics
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import Address

CHARGEBACK_DELAY_MS = 120_000
"""Mean time from a simulated transaction to its chargeback, unless a file is replayed."""
CHANGES_PER_S = 2.0


class Feed(Background):
    """A load sent by background threads until `stop`, the end of its time, or the end of its records."""

    def __init__(
        self,
        sender: Sender,
        records: Iterable[Records],
        pace: Pace,
        for_s: float | None,
        topic: str,
        changing: ProfileFeed | None = None,
    ) -> None:
        super().__init__("load", patience_s=None)
        self._sender, self._records, self._pace, self._for_s = sender, records, pace, for_s
        self._topic, self._changing = topic, changing
        self._fault: Exception | None = None
        self.begun_at = 0.0
        """Wall clock of the start, seconds since 1970-01-01 UTC; 0 before."""

    def start(self) -> None:
        """Start the threads; returns at once."""
        self.begun_at = time.time()
        if self._changing is not None:
            self._changing.start()
        super().start()

    def stop(self) -> None:
        """Stop, and wait until everything sent is in Kafka."""
        self._sender.stop()
        super().stop()
        if self._changing is not None:
            self._changing.stop()
        self.check()

    def check(self) -> None:
        """Raise the error that ended the load or the profile changes, if any; most are a FraudError."""
        if self._fault is not None:
            raise self._fault
        if self._changing is not None:
            self._changing.check()

    @property
    def sent(self) -> int:
        """Transactions handed to Kafka."""
        return self._sender.sent[self._topic]

    @property
    def profile_changes(self) -> int:
        """Changes made in Postgres."""
        return self._changing.applied if self._changing is not None else 0

    def _run(self) -> None:
        try:
            until_ms = self._sender.clock.now_ms() + 1_000 * (self._for_s or float("inf"))
            self._sender.send(self._records, self._pace, until_ms=until_ms)
        except Exception as error:  # would otherwise be printed, and the load would count as over
            self._fault = error


def simulated(options: Options, endpoints: Endpoints, topics: Topics, world: World, start_ms: int) -> Feed:
    """Create a load of simulated, disturbed traffic from `start_ms`, with chargebacks and profile changes."""
    stream = Stream(world, options.rate, start_ms)
    labels = Chargebacks(options.seed, delay_ms=CHARGEBACK_DELAY_MS, spread=0.5, fraud_share=0.95)
    churn = ProfileChurn(world, options.rate, start_ms, changes_per_s=CHANGES_PER_S, fraud=stream.fraud)
    return Feed(
        Sender(Address(endpoints.bootstrap_servers)),
        timeline(stream.blocks(), labels, topics, drain=False),
        Pace.live(),
        # with --rollouts the session ends the load
        None if options.rollouts else options.for_s,
        topics.transactions,
        ProfileFeed(endpoints.postgres_dsn, churn),
    )


def replayed(
    options: Options, endpoints: Endpoints, topics: Topics, replay: Replay, watch: MerchantWatch | None
) -> Feed:
    """Create a load that replays a file, from its beginning or from where an earlier run was killed."""
    brokers = Address(endpoints.bootstrap_servers)
    destination.check(brokers, [topics.transactions, topics.chargebacks], replay.first_ms)
    sender = Sender(brokers, stamped=True)
    fed = {
        topic: fed_until(endpoints.bootstrap_servers, topic)
        for topic in (topics.transactions, topics.chargebacks)
    }
    begin_ms = fed[topics.transactions]
    if watch is None:
        records = timeline(replay.batches(), Chargebacks(), topics, drain=True)
    else:
        labels = compromise.chargebacks(options.seed)
        records = watch.feed(timeline(replay.batches(), labels, topics, drain=False), topics)
    return Feed(
        sender,
        records if begin_ms is None else _from(records, fed),
        Pace(sender.clock.now_ms(), begin_ms or replay.first_ms, options.speed),
        options.for_s,
        topics.transactions,
    )


def _from(records: Iterator[Records], fed: Mapping[str, int | None]) -> Iterator[Records]:
    """Leave out each topic's records before its arrival in `fed`, which differs by topic after a kill."""
    for piece in records:
        first = int(np.searchsorted(piece.at, fed[piece.topic] or 0, side="left"))
        if first < len(piece):
            yield piece.cut(first, len(piece))


def fed_until(bootstrap_servers: str, topic: str) -> int | None:
    """Return the arrival up to which all partitions of a replayed topic were fed, ms; None if any is empty.

    A killed feed leaves the partitions at different arrivals. Continuing from the earliest of these arrivals
    repeats some records of the other partitions: the job recognises transactions as duplicates, and a label
    that comes again states nothing new.
    """
    try:
        with closing(clients.reader(Address(bootstrap_servers), "fraud-demo")) as reader:
            last_arrivals = []
            for partition in topic_reader.partitions(reader, topic):
                last = follow.newest(reader, TopicPartition(topic, partition))
                if not last:
                    return None
                last_arrivals.append(last[0].timestamp()[1])
            return min(last_arrivals)
    except KafkaException as error:
        raise FraudError(f"topic {topic} cannot be read ({error}); check the broker's log") from error

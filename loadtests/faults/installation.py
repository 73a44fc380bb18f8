"""One installation of the job on a stack: its own topics, checkpoint and job id."""

import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Producer

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from loadtests.audit.topic_log import TopicLog
from loadtests.audit.verify import Verdict, verify
from loadtests.faults.errors import FaultError
from loadtests.faults.job_process import PATIENCE_S, JobProcess
from loadtests.faults.progress_follower import ProgressFollower
from loadtests.oracle import Record
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from models import registry
from models.pipeline import Trained, fit_and_register
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import installation
from models.rollouts.publishing import publish
from streaming_job.contracts.topics import Topics
from streaming_job.log.partitioner import Partitioner
from streaming_job.settings import JobSettings

RATE = 500.0
UNDISTURBED = asdict(Disturbances.none())
"""For `Installation.send`: nothing is late, broken or repeated."""
POLL_S = 0.1
"""Rarely enough that asking costs the job nothing."""
PARTITIONERS = {Partitioner.MURMUR2: "murmur2_random", Partitioner.CRC32: "consistent_random"}
"""What librdkafka calls them."""
NO_CARD = b"card"
"""Key of records that name no card."""
_numbers = itertools.count()


@cache
def world() -> World:
    """A few hundred cards, so that each is used often."""
    return World.create(seed=3, cards=300, merchants=100)


@cache
def trained(tracking_uri: str) -> Trained:
    """A small model of the world's frauds, registered once a session."""
    start = 1_750_000_000_000
    stream = Stream(world(), rate=0.05, start_ms=start, disturbances=Disturbances.none())
    history = pa.concat_tables(batch.table for batch in stream.blocks(events=20_000))
    return fit_and_register(history, tracking_uri, iterations=20, leaves=8, alert_budget=0.02)


class RolledOut(NamedTuple):
    """What decides since."""

    rollout_id: str
    model: ModelRef


class Installation:
    """What an operator sets up, and how he looks at it from outside."""

    def __init__(
        self, stack: Endpoints, topics: Topics, directory: Path, cards: World | None = None, **settings: Any
    ) -> None:
        """Make the topics.

        Args:
            stack: the servers.
            topics: names of topics that nobody else uses.
            directory: for checkpoint, working copies and logs.
            cards: whose transactions are sent; default `world()`.
            settings: of the job, where they are not the usual ones.
        """
        self.stack, self.topics, self.directory = stack, topics, directory
        self.world = cards or world()
        self.settings = JobSettings(
            **{
                "job_id": f"job-{topics.transactions}",
                "bootstrap_servers": stack.bootstrap_servers,
                "topics": topics,
                "mlflow_tracking_uri": stack.mlflow_tracking_uri,
                "checkpoint": str(directory / "checkpoint"),
                "work_dir": directory / "work",
                "wait_for_snapshot_s": 0,  # most tests have no profiles
                **settings,
            }
        )
        broker.create(stack.bootstrap_servers, topics)
        # quiet when the broker is killed
        client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": stack.bootstrap_servers,
            "log_level": 0,
        }
        self._log = TopicLog(stack.bootstrap_servers)
        self._progress = ProgressFollower(stack.bootstrap_servers, self.settings)
        self._producer = Producer(
            {
                **client,
                "message.max.bytes": 2_000_000,
                "partitioner": PARTITIONERS[self.settings.partitioner],
                # what is sent again because the broker died is no second record
                "enable.idempotence": True,
                "delivery.report.only.error": True,
                "on_delivery": lambda error, _: self._refused.append(error.str()),
            }
        )
        self._refused: list[str] = []
        self.sent = 0
        """Transaction records sent."""

    def environment(self, **changes: object) -> dict[str, str]:
        """The settings as variables, some of them changed (`checkpoint=...`)."""
        return self.settings.model_copy(update=changes).variables()

    def start(self, release: Path | None = None, /, **changes: object) -> JobProcess:
        """Start the job.

        Args:
            release: directory of the packages to run; default: those of this process.
            changes: of the settings.
        """
        return JobProcess(self.environment(**changes), self.directory, release=release)

    def roll_out(self, *, model: ModelRef | None = None, max_count_5m: int = 15) -> RolledOut:
        """Put a model in charge; default the session's."""
        known = trained(self.stack.mlflow_tracking_uri)
        policy = Policy(known.quality.threshold, max_count_5m)
        now = int(time.time() * 1000)
        rolled_out = RolledOut(f"r{next(_numbers)}", model or known.ref)
        events = installation(rolled_out.model, policy, rolled_out.rollout_id, "test", now)
        publish(events, self.stack.bootstrap_servers, self.topics.model_rollouts)
        return rolled_out

    def send(self, events: int, **disturbances: float) -> None:
        """Send simulated transactions that happen now, as fast as they go."""
        start = int(time.time() * 1000 - events / RATE * 1000)
        stream = Stream(self.world, RATE, start, disturbances=Disturbances(**disturbances))
        for batch in stream.blocks(events=events):
            for key, value in zip(*batch.encode(), strict=True):
                self._produce(key, value)
        self.flush()

    def send_raw(
        self, values: Sequence[bytes | None], key: bytes | None = None, *, partition: int | None = None
    ) -> None:
        """Send records as they are.

        Args:
            values: of the records.
            key: of all of them; default: the card that each names, as a sound producer does it.
            partition: where they all go, whatever their cards say; default: where their keys belong.
        """
        for value in values:
            self._produce(card_of(value) if key is None else key, value, partition)
        self.flush()

    def produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None = None
    ) -> None:
        """Hand a record to the producer."""
        self._producer.produce(topic, value, key, -1 if partition is None else partition)
        self._producer.poll(0)

    def _produce(self, key: bytes | None, value: bytes | None, partition: int | None = None) -> None:
        self.produce(self.topics.transactions, key, value, partition)
        self.sent += 1

    def flush(self) -> None:
        """Wait until all that was sent is in Kafka.

        Raises:
            FaultError: it does not get there.
        """
        if left := self._producer.flush(PATIENCE_S):
            raise FaultError(f"{left} records were not taken in {PATIENCE_S:.0f} s; look at the broker")
        if self._refused:
            raise FaultError(f"{len(self._refused)} records were refused: {self._refused[0]}; correct them")

    def lag(self) -> dict[tuple[str, int], int]:
        """Records behind, by input partition; only where there are some.

        Tables are told by the group that is behind the most, once nothing else is to be done: only one group
        commits their offsets.
        """
        tables = self.settings.tables
        names = (self.topics.transactions, *tables)
        committed = self._log.committed(self.settings.job_id, names)
        ends = {(name, part): end for name in names for part, end in self._log.ends(name).items()}
        lags = {place: end - committed.get(place, 0) for place, end in ends.items()}
        if not any(lag > 0 for lag in lags.values()):
            read = self._progress.tables_read()
            lags = {place: end - read.get(place, 0) for place, end in ends.items() if place[0] in tables}
        return {place: lag for place, lag in lags.items() if lag > 0}

    def commits(self) -> int:
        """How many commits of the job have told of their progress so far."""
        return self._progress.commits()

    def caught_up(self, job: JobProcess, say: Callable[[str], None] = lambda _: None) -> None:
        """Wait until the job has committed everything that was sent.

        Args:
            job: the one that runs.
            say: is told how far it is.

        Raises:
            FaultError: it ended, or does not get on.
        """
        least, since = math.inf, time.monotonic()
        while lag := self.lag():
            left = sum(lag.values())
            say(f"{left:,} records to go")
            if left < least:
                least, since = left, time.monotonic()
            if not job.runs or time.monotonic() - since > PATIENCE_S:
                what = "does not get on" if job.runs else "ended"
                raise FaultError(f"the job {what}, behind by {lag}; its log ends with: {job.log[-3000:]}")
            time.sleep(POLL_S)

    def ends(self, topic: str) -> dict[int, int]:
        """First offset after the last committed record of each partition."""
        return self._log.ends(topic)

    def count(self, topic: str) -> int:
        """How many records a topic has had, markers of transactions among them."""
        return sum(self._log.ends(topic).values())

    def read(self, topic: str) -> list[Record]:
        """All committed records of a topic."""
        return list(self._log.read(topic))

    def progress(self) -> Iterator[Record]:
        """The job's progress records so far, in the order in which they were written."""
        return self._log.read(self.topics.job_progress)

    def verdict(self) -> Verdict:
        """Compare outputs with the oracle's."""
        return verify(
            self._log,
            self.settings,
            lambda rollout: registry.load(
                rollout.model, self.settings.mlflow_tracking_uri, self.directory / "audit-models"
            ),
        )

    def audit(self) -> Verdict:
        """Compare outputs with the oracle's; everything sent must be covered and agree.

        Raises:
            FaultError: it is not, or it does not.
        """
        verdict = self.verdict()
        report = verdict.report()
        report["examples"] = [example[:300] for example in report["examples"][:5]]
        if not verdict.is_clean or verdict.events != self.sent:
            raise FaultError(
                f"of {self.sent} transactions not all became what they had to: {json.dumps(report)}"
            )
        return verdict

    def reasons(self) -> Counter[str]:
        """Dead letters by reason."""
        return Counter(
            json.loads(letter.value or b"")["reason"] for letter in self.read(self.topics.dead_letters)
        )


def card_of(value: bytes | None) -> bytes:
    """The key of a transaction as a sound producer sets it: its card, where it names one."""
    try:
        card = json.loads(value or b"")["card_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return NO_CARD
    return card.encode(errors="surrogatepass") if isinstance(card, str) and card else NO_CARD

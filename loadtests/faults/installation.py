"""One installation of the job on a stack: its own topics, checkpoint and job id."""

import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from deploy.local.waiting import Patience
from loadtests.audit.topic_log import TopicLog
from loadtests.audit.verify import AuditResult, verify
from loadtests.faults.acls import grant
from loadtests.faults.errors import FaultError
from loadtests.faults.job_process import PATIENCE_S, JobProcess
from loadtests.faults.progress_follower import ProgressFollower
from loadtests.faults.record_producer import RecordProducer, card_of
from loadtests.oracle import Record
from loadtests.rig.watch import AlertWatch
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.rollouts import publish
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from models import loading
from models.algorithms import QUICK
from models.pipeline import TrainingResult, fit_and_register
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import installation
from streaming_job import environment
from streaming_job.contracts.topic import Component
from streaming_job.contracts.topics import Topics
from streaming_job.log.clients import Address
from streaming_job.log.partitioner import Partitioner
from streaming_job.log.records import PartitionId
from streaming_job.permissions import needed
from streaming_job.settings import JobSettings

RATE = 500.0
UNDISTURBED = asdict(Disturbances.none())
"""Arguments of `Installation.send` for transactions without any disturbance."""
POLL_S = 0.1
"""Poll interval, seconds; long enough not to slow the job down."""
_numbers = itertools.count()


@cache
def world() -> World:
    """Create a world of a few hundred cards, so that each is used often."""
    return World.create(seed=3, cards=300, merchants=100)


@cache
def trained(tracking_uri: str) -> TrainingResult:
    """Train and register a small model of the world's frauds, once per process."""
    start = 1_750_000_000_000
    stream = Stream(world(), rate=0.05, start_ms=start, disturbances=Disturbances.none())
    history = pa.concat_tables(batch.table for batch in stream.blocks(events=20_000))
    return fit_and_register(history, tracking_uri, learner=replace(QUICK, iterations=20), alert_budget=0.02)


def query_of(checkpoint: str) -> str:
    """Return the id of the query of a local checkpoint."""
    from streaming_job.runtime.checkpoint import METADATA, query_in  # imports PySpark

    return query_in((Path(checkpoint) / METADATA).read_bytes())


class RolledOut(NamedTuple):
    """A rollout and its model."""

    rollout_id: str
    model: ModelRef


class Installation:
    """Set-up of a job on a stack, and the operator's view of it from outside."""

    def __init__(
        self, stack: Endpoints, topics: Topics, directory: Path, cards: World | None = None, **settings: Any
    ) -> None:
        """Create the topics.

        Args:
            topics: topic names used by no other job.
            directory: gets checkpoint, working copies and logs.
            cards: the world whose transactions are sent; default `world()`.
            settings: settings of the job that differ from the defaults.
        """
        self.stack, self.topics, self.directory = stack, topics, directory
        self.world = cards or world()
        self.settings = environment.settings(
            JobSettings,
            **{
                "job_id": f"job-{topics.transactions}",
                "bootstrap_servers": stack.bootstrap_servers,
                "topics": topics,
                "mlflow_tracking_uri": stack.mlflow_tracking_uri,
                "checkpoint": str(directory / "checkpoint"),
                "work_dir": directory / "work",
                "wait_for_snapshot_s": 0,  # most tests have no profiles
                **settings,
            },
        )
        broker.create(stack.bootstrap_servers, topics)
        self._log = TopicLog(stack.bootstrap_servers)
        self._progress = ProgressFollower(self._log, self.settings)
        self._producer = RecordProducer(stack.bootstrap_servers, self.settings.partitioner)
        self.sent = 0
        """Number of transaction records sent."""

    def move(self, topic: str, partitioner: Partitioner, partitions: int) -> None:
        """Send all further transactions to another topic, which is created, or by another partitioner.

        Args:
            partitions: number of partitions, if the topic is new.
        """
        self.topics = self.topics.model_copy(update={"transactions": topic})
        self.settings = self.settings.model_copy(update={"topics": self.topics, "partitioner": partitioner})
        broker.create(self.stack.bootstrap_servers, self.topics, partitions=partitions)
        self._producer = RecordProducer(self.stack.bootstrap_servers, partitioner)

    def environment(self, **changes: object) -> dict[str, str]:
        """Return the settings as FRAUD_... variables, with changes such as `checkpoint=...`."""
        return self.settings.model_copy(update=changes).variables()

    def start(self, release: Path | None = None, /, **changes: Any) -> JobProcess:
        """Start the job.

        Args:
            release: directory of a release, whose packages run; default: the packages of this process.
            changes: changed settings.
        """
        settings = self.settings.model_copy(update=changes)
        if "sasl.username" in settings.kafka:
            grant(self.stack.bootstrap_servers, Component.JOB, needed(Component.JOB, settings))
        return JobProcess(self.environment(**changes), self.directory, release=release)

    def roll_out(self, *, model: ModelRef | None = None, max_count_5m: int = 15) -> RolledOut:
        """Make a model the champion; default: the model of `trained`."""
        default = trained(self.stack.mlflow_tracking_uri)
        policy = Policy(default.quality.threshold, max_count_5m)
        now = int(time.time() * 1000)
        rolled_out = RolledOut(f"r{next(_numbers)}", model or default.ref)
        events = installation(rolled_out.model, policy, rolled_out.rollout_id, "test", now)
        publish(events, self.stack.bootstrap_servers, self.topics.model_rollouts)
        return rolled_out

    def send(self, events: int, **disturbances: float) -> None:
        """Send simulated transactions with current event times, as fast as possible.

        Args:
            events: number of records, repeated transactions included.
            disturbances: shares that differ from the defaults of `Disturbances`.
        """
        start = int(time.time() * 1000 - events / RATE * 1000)
        stream = Stream(self.world, RATE, start, disturbances=Disturbances(**disturbances))
        for batch in stream.blocks(events=events):
            for key, value in zip(*batch.encode(), strict=True):
                self._produce(key, value)
        self.flush()

    def send_raw(
        self, values: Sequence[bytes | None], key: bytes | None = None, *, partition: int | None = None
    ) -> None:
        """Send raw records.

        Args:
            key: key of all records; default: the card of each record, as from a correct producer.
            partition: partition of all records; default: chosen by their keys.
        """
        for value in values:
            self._produce(card_of(value) if key is None else key, value, partition)
        self.flush()

    def produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None = None
    ) -> None:
        """Produce a record."""
        self._producer.produce(topic, key, value, partition)

    def _produce(self, key: bytes | None, value: bytes | None, partition: int | None = None) -> None:
        self.produce(self.topics.transactions, key, value, partition)
        self.sent += 1

    def flush(self) -> None:
        """Wait until all sent records are acknowledged."""
        self._producer.flush()

    def lag(self) -> dict[PartitionId, int]:
        """Return the job's lag in records, by input partition; partitions without lag are left out.

        Only one key group commits the offsets of tables. Once committed offsets show no lag, the tables' lag
        is computed from the progress record of the slowest group.
        """
        tables = self.settings.tables
        names = (self.topics.transactions, *tables)
        committed = self._log.committed(self.settings.job_id, names)
        ends = {(name, part): end for name in names for part, end in self._log.ends(name).items()}
        lags = {partition: end - committed.get(partition, 0) for partition, end in ends.items()}
        if not any(lag > 0 for lag in lags.values()):
            read = self._progress.tables_read(tables)
            lags = {
                partition: end - read.get(partition, 0)
                for partition, end in ends.items()
                if partition[0] in tables
            }
        return {partition: lag for partition, lag in lags.items() if lag > 0}

    def commits(self) -> int:
        """Return the number of the job's commits so far."""
        return self._progress.commits()

    def caught_up(self, job: JobProcess, say: Callable[[str], None] = lambda _: None) -> None:
        """Wait until the job has committed everything sent.

        Raises:
            FaultError: the job ended, or makes no progress.
        """

        def error(state: str) -> FaultError:
            return FaultError(f"the job {state}, behind by {lag}; its log ends with: {job.log[-3000:]}")

        patience, least = Patience(PATIENCE_S, POLL_S), math.inf
        while lag := self.lag():
            remaining = sum(lag.values())
            say(f"{remaining:,} records to go")
            if not job.runs:
                raise error("ended")
            least = min(least, remaining)
            patience.wait(lambda: error("makes no progress"), least)

    def ends(self, topic: str) -> dict[int, int]:
        """Return the last stable offset of each partition."""
        return self._log.ends(topic)

    def count(self, topic: str) -> int:
        """Return how many offsets a topic has used, transaction markers included."""
        return sum(self._log.ends(topic).values())

    def read(self, topic: str) -> list[Record]:
        """Read all committed records of a topic."""
        return list(self._log.read(topic))

    def watch_alerts(self) -> AlertWatch:
        """Start to receive the alerts that are written from now on."""
        watch = AlertWatch(Address(self.stack.bootstrap_servers), self.topics.fraud_alerts)
        watch.start()
        return watch

    def progress(self) -> list[Record]:
        """Read the job's progress records so far, in the order of writing."""
        return sorted(self._log.read(self.topics.job_progress), key=attrgetter("timestamp"))

    def verdict(self) -> AuditResult:
        """Audit the outputs against the oracle."""
        return verify(
            self._log,
            self.settings,
            lambda rollout: loading.load(
                rollout.model, self.settings.mlflow_tracking_uri, self.directory / "audit-models"
            ),
        )

    def audit(self) -> AuditResult:
        """Audit the outputs; require agreement with the oracle, and that all sent transactions were audited.

        Raises:
            FaultError: the outputs differ, or not all transactions were audited.
        """
        verdict = self.verdict()
        report = verdict.report()
        report["examples"] = [example[:300] for example in report["examples"][:5]]
        if not verdict.is_clean or verdict.events != self.sent:
            raise FaultError(
                f"the audit found differences, or did not read exactly the {self.sent} transactions sent: "
                f"{json.dumps(report)}"
            )
        return verdict

    def reasons(self) -> Counter[str]:
        """Count the dead letters by reason."""
        return Counter(
            json.loads(letter.value or b"")["reason"] for letter in self.read(self.topics.dead_letters)
        )

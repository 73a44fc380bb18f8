"""The measured system: embedded stack, champion, profiles, and the job as a child process."""

import json
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from deploy.demo import training
from deploy.demo.options import Options
from deploy.demo.training import Champion
from deploy.local import stack, state
from deploy.local import topics as broker
from deploy.local.child import Child, stop
from deploy.local.launch import FRAUD
from deploy.local.stack import Endpoints
from deploy.local.state import ALL, Service
from deploy.local.waiting import Patience
from feature_store.errors import FraudError
from loadtests.bench.history import SPAN_S
from loadtests.faults.installation import POLL_S, UNDISTURBED, Installation
from loadtests.faults.job_process import PATIENCE_S, JobProcess
from loadtests.rig.report import Say
from loadtests.simulator import profiles
from loadtests.simulator.rollouts import publish
from loadtests.simulator.world import World
from models.policy import Policy
from models.rollouts.events import SHADOW, Challenger, Event, Type, installation
from streaming_job.contracts.topics import Topics
from streaming_job.settings import Arrival, JobSettings

PAST_S = 3_600.0
"""Minimal length of the training history in event time, seconds; FEWEST_CARDS takes precedence."""
FEWEST_CARDS = 200
"""Minimal number of cards in the training history."""
BURST = 2_000
"""Transactions that a job decides before it is measured: it loads the model, and all code that they use."""
ACTOR = "fraud bench"
FEED_TIMEOUT_S = 60.0
"""Time limit for the simulator's first transactions and for its end, seconds."""


class BenchError(FraudError):
    """A benchmark cannot be run, has nothing to measure or plot, or its audit found differences."""


@dataclass(frozen=True)
class RigOptions:
    """Parameters of the measured system."""

    data_dir: Path
    """Directory of all data; emptied first."""
    cards: int = 100_000
    seed: int = 1
    rate: float = 2_000.0
    """Transactions per second of event time; the training history has the same rate per card."""
    profiles: bool = True
    """Whether profiles are fed through Postgres and Debezium."""
    shadows: int = 0
    """Number of challengers in shadow, with as many trees as the champion."""
    archive: bool = False
    """Whether transactions have past Kafka timestamps, as in a `History`; rollout events then have still
    earlier timestamps."""


class MeasuredCommit(NamedTuple):
    """The measured parts of a progress record."""

    key_group: int
    written_at: int
    """ms since 1970-01-01 UTC."""
    decided: int
    """Transactions without repeated ones."""
    repeated: int
    phases_ms: dict[str, float]

    @staticmethod
    def of(record: Mapping[str, Any]) -> "MeasuredCommit":
        """Extract the parts from a whole record."""
        counts = record["counts"]
        return MeasuredCommit(
            record["key_group"],
            record["written_at"],
            counts["transactions"],
            counts["duplicates"],
            record["phases_ms"],
        )


class Rig:
    """Servers and job of one measurement."""

    def __init__(self, options: RigOptions, installed: Installation, champion: Champion) -> None:
        self.options, self.installed, self.champion = options, installed, champion
        self._job: JobProcess | None = None
        self.settings = installed.settings
        """Those of the running job."""

    @property
    def job(self) -> JobProcess:
        """The running job."""
        assert self._job is not None
        return self._job

    def start_job(self) -> None:
        """Start the job; `catch_up` waits for it."""
        self._job = self.installed.start()

    def start_warm_job(self, say: Say) -> None:
        """Start the job, and wait until it has decided some transactions."""
        self.start_job()
        self.catch_up(say)
        self.installed.send(BURST, **UNDISTURBED)
        self.catch_up(say)

    def replace_job(self, settings: JobSettings) -> None:
        """Have a job with these settings take over from the running one; return when that has ended."""
        predecessor = self.job
        self._job = successor = JobProcess(settings.variables(), self.installed.directory)
        self.settings = settings
        successor.wait_until(lambda: not predecessor.runs, PATIENCE_S)

    def stop_job(self) -> None:
        """Stop the job gracefully."""
        self.job.terminate()

    def kill_job(self) -> None:
        """Kill the job if it runs."""
        if self._job is not None:
            self._job.kill()

    def check(self) -> None:
        """Raise ProcessError unless the job still runs."""
        self.job.check()

    @contextmanager
    def feeding(self, rate: float, for_s: float) -> Iterator[None]:
        """Run the simulator as a child process; enters the context once its first transactions are sent.

        Args:
            for_s: length of the simulation, seconds; it ends with the context at the latest.
        """
        directory = self.options.data_dir
        command, secret = simulator(self.options, self.installed.stack, rate, for_s)
        feed = Child("the simulator", command, directory / "logs" / "simulator.log", secret)
        try:
            feed.wait_until(lambda: bool(self.installed.lag()), FEED_TIMEOUT_S)
            yield
        finally:
            stop([feed], FEED_TIMEOUT_S)

    def catch_up(self, say: Say) -> None:
        """Wait until the job has committed everything sent."""
        self.installed.caught_up(self.job, say)

    def commits(self) -> list[MeasuredCommit]:
        """Return the job's commits so far, in the order of writing."""
        return [MeasuredCommit.of(json.loads(record.value or b"")) for record in self.installed.progress()]


def simulator(
    options: RigOptions, servers: Endpoints, rate: float, for_s: float
) -> tuple[list[str], dict[str, str]]:
    """Return the simulator's command line, and its secrets as variables, hidden from other users."""
    command = [
        *FRAUD, "simulate",
        "--bootstrap-servers", servers.bootstrap_servers,
        "--rate", str(rate), "--cards", str(options.cards), "--seed", str(options.seed), "--for", f"{for_s}s",
    ]  # fmt: skip
    return command, {"FRAUD_POSTGRES_DSN": servers.postgres_dsn if options.profiles else ""}


def empty(directory: Path) -> None:
    """Stop the servers of a data directory and empty it.

    Raises:
        BenchError: it is not empty and not the directory of a stack.
    """
    if directory.exists() and any(directory.iterdir()) and not (directory / state.FILE).exists():
        raise BenchError(f"{directory} was not made by `fraud bench`; choose another --data-dir")
    stack.down(directory)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


@contextmanager
def rig(options: RigOptions, say: Say) -> Iterator[Rig]:
    """Run the servers, with the profiles and models loaded.

    At the end, kill the job and stop the servers, each process by its pid.
    """
    directory = options.data_dir
    empty(directory)
    services: Collection[Service] = ALL if options.profiles else ["kafka"]
    system: Rig | None = None
    try:
        say("starting the servers")
        endpoints = stack.up(directory, services=[name for name in services if name != "connect"])
        world = World.create(options.seed, options.cards)
        if options.profiles:
            say(f"loading the profiles of {options.cards:,} cards")
            profiles.load(endpoints.postgres_dsn, world)
        endpoints = stack.up(directory, services=services)
        snapshot_s = 600 if options.profiles else 0
        installed = Installation(
            endpoints,
            Topics(),
            directory / "job",
            world,
            wait_for_snapshot_s=snapshot_s,
            arrival=Arrival.CREATE if options.archive else Arrival.LOG_APPEND,
        )
        say("training the model")
        system = Rig(options, installed, _roll_out(options, installed))
        if options.profiles:
            _wait_for_profiles(system, say)
        yield system
    finally:
        if system is not None:
            system.kill_job()
        say("stopping the servers")
        stack.down(directory)


def _roll_out(options: RigOptions, installed: Installation) -> Champion:
    now_ms = int(time.time() * 1_000)
    servers, topic = installed.stack.bootstrap_servers, installed.topics.model_rollouts
    # one world for each model: models of the same world would be equal
    champion, *others = (
        _trained(options, options.seed + number, installed, now_ms) for number in range(options.shadows + 1)
    )
    policy = Policy(champion.threshold, champion.max_count_5m)
    timestamp_ms = None
    if options.archive:
        # Kafka timestamps are the event times, because with timestamps from the broker all transactions
        # would be one burst; the rollout gets an earlier timestamp than all transactions, because it applies
        # only to transactions that arrive after it
        broker.create(servers, installed.topics, replay=True)
        timestamp_ms = now_ms - int(2_000 * SPAN_S)
    events = [*installation(champion.ref, policy, "bench", ACTOR, now_ms)]
    if others:
        events += _in_shadow(others, champion, now_ms)
    publish(events, servers, topic, timestamp_ms=timestamp_ms)
    return champion


def _trained(options: RigOptions, seed: int, installed: Installation, now_ms: int) -> Champion:
    # at high rates the training history would cover only seconds, so it has fewer cards with the same habits
    share = max(1.0, options.rate * PAST_S / training.HISTORY)
    cards = max(FEWEST_CARDS, round(options.cards / share))
    rate = options.rate * cards / options.cards
    tracking_uri = installed.stack.mlflow_tracking_uri
    world = Options(options.data_dir, seed=seed, cards=cards, rate=rate)
    return training.train(world, tracking_uri, now_ms)[training.CHAMPION]


def _in_shadow(models: Sequence[Champion], champion: Champion, now_ms: int) -> tuple[Event, Event]:
    challengers = tuple(
        Challenger(f"shadow-{number}", SHADOW, 0, model.ref, Policy(model.threshold, champion.max_count_5m))
        for number, model in enumerate(models)
    )
    proposed = Event(
        Type.PROPOSED, "shadows", 1, "shadows/1", ACTOR, "measured", now_ms,
        champion=champion.ref, challengers=challengers, line=champion.ref.name,
    )  # fmt: skip
    return proposed, Event(Type.SHADOW_STARTED, "shadows", 2, "shadows/2", ACTOR, "measured", now_ms)


def _wait_for_profiles(system: Rig, say: Say) -> None:
    installed = system.installed
    rows = int(installed.world.cards.has_profile.sum())
    patience = Patience(PATIENCE_S, POLL_S)
    while (arrived := installed.count(installed.topics.profiles)) < rows:
        text = f"{arrived:,} of {rows:,} profiles are on their topic"
        say(text)
        patience.wait(partial(BenchError, f"only {text}; `fraud stack status` names the connector's log"))

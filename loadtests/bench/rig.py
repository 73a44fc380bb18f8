"""A whole system to measure: embedded stack, champion, profiles, and the job as a process of its own."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from deploy.demo import training
from deploy.demo.training import Champion
from deploy.local import processes, stack, state
from deploy.local.stack import Endpoints
from deploy.local.state import ALL, Service
from feature_store.errors import FraudError
from loadtests.faults.installation import POLL_S, Installation
from loadtests.faults.job_process import PATIENCE_S, JobProcess
from loadtests.simulator.profiles import ProfileLoader
from loadtests.simulator.world import World
from models.policy import Policy
from models.rollouts.events import SHADOW, Challenger, Event, Type, installation
from models.rollouts.publishing import publish
from streaming_job.contracts.topics import Topics

Say = Callable[[str], None]
PAST_S = 3_600.0
"""Event time that the model learns from, at least."""
FEWEST_CARDS = 200
"""... and cards."""
ACTOR = "fraud bench"
FEED_TIMEOUT_S = 60.0
"""For the simulator's first transactions, and for its end."""


class BenchError(FraudError):
    """The system to be measured does not run."""


@dataclass(frozen=True)
class Plan:
    """What to measure on."""

    data_dir: Path
    """Emptied first; everything lies there."""
    cards: int = 100_000
    seed: int = 1
    rate: float = 2_000.0
    """Transactions per second of event time; the model learns from cards of the same habits."""
    profiles: bool = True
    """Whether there are profiles, by way of Postgres and Debezium."""
    shadows: int = 0
    """Challengers in shadow, of as many trees as the champion."""


class Commit(NamedTuple):
    """What is measured of a progress record: there are many."""

    key_group: int
    written_at: int
    """ms since 1970-01-01 UTC."""
    decided: int
    """Transactions, those that are repeated left out."""
    repeated: int
    phases_ms: dict[str, float]

    @staticmethod
    def of(record: Mapping[str, Any]) -> "Commit":
        """The same of a whole record."""
        counts = record["counts"]
        return Commit(
            record["key_group"],
            record["written_at"],
            counts["transactions"],
            counts["duplicates"],
            record["phases_ms"],
        )


class Rig:
    """Servers and job of one measurement."""

    def __init__(self, plan: Plan, installed: Installation, champion: Champion) -> None:
        self.plan, self.installed, self.champion = plan, installed, champion
        self._job: JobProcess | None = None

    @property
    def job(self) -> JobProcess:
        """The job that runs."""
        assert self._job is not None
        return self._job

    def start_job(self) -> None:
        """Start the job; `catch_up` tells when it runs, or that it does not."""
        self._job = self.installed.start()

    def stop_job(self) -> None:
        """Graceful stop."""
        self.job.terminate()

    def kill_job(self) -> None:
        """End it in any case."""
        if self._job is not None:
            self._job.kill()

    def check(self) -> None:
        """See that the job still runs.

        Raises:
            BenchError: it does not.
        """
        if not self.job.runs:
            raise BenchError(f"the job ended; its log ends with:\n{self.job.log[-3000:]}")

    @contextmanager
    def feeding(self, rate: float, for_s: float) -> Iterator[None]:
        """The simulator as a process of its own; begins once its first transactions are there.

        Args:
            rate: transactions per second.
            for_s: it ends after so long, or with the context.
        """
        directory = self.plan.data_dir
        log = directory / "logs" / "simulator.log"
        mark = f"card-fraud.bench-feed={directory}"
        command, secret = simulator(self.plan, self.installed.stack, rate, for_s, mark)
        feed = processes.spawn(command, marker=mark, log=log, cwd=Path.cwd(), env={**os.environ, **secret})
        try:
            processes.wait_until(
                lambda: bool(self.installed.lag()),
                server=feed,
                name="the simulator",
                log=log,
                deadline_s=FEED_TIMEOUT_S,
            )
            yield
        finally:
            processes.stop(feed, patience_s=FEED_TIMEOUT_S)

    def catch_up(self, say: Say) -> None:
        """Wait until the job has committed everything there is.

        Raises:
            FaultError: it ended, or does not get on.
        """
        self.installed.caught_up(self.job, say)

    def commits(self) -> list[Commit]:
        """What the job's progress records tell so far, in the order in which they were written."""
        return [Commit.of(json.loads(record.value or b"")) for record in self.installed.progress()]


def simulator(
    plan: Plan, servers: Endpoints, rate: float, for_s: float, mark: str
) -> tuple[list[str], dict[str, str]]:
    """The simulator's command line, and variables for what the machine's other users must not read there."""
    command = [
        sys.executable, "-X", mark, "-m", "deploy.cli", "simulate",
        "--bootstrap-servers", servers.bootstrap_servers,
        "--rate", str(rate), "--cards", str(plan.cards), "--seed", str(plan.seed), "--for", f"{for_s}s",
    ]  # fmt: skip
    return command, {"FRAUD_POSTGRES_DSN": servers.postgres_dsn if plan.profiles else ""}


def empty(directory: Path) -> None:
    """Stop what still runs on a data directory and empty it.

    Raises:
        BenchError: it holds something that no stack was run on.
    """
    if directory.exists() and any(directory.iterdir()) and not (directory / state.FILE).exists():
        raise BenchError(f"{directory} was not made by `fraud bench`; choose another --data-dir")
    stack.down(directory)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


@contextmanager
def rig(plan: Plan, say: Say) -> Iterator[Rig]:
    """Bring servers, profiles and champion up; stop everything at the end, by pid.

    Raises:
        FraudError: a part does not come up.
    """
    directory = plan.data_dir
    empty(directory)
    services: Collection[Service] = ALL if plan.profiles else ["kafka"]
    made: Rig | None = None
    try:
        say("starting the servers")
        endpoints = stack.up(directory, services=[name for name in services if name != "connect"])
        world = World.create(plan.seed, plan.cards)
        if plan.profiles:
            say(f"loading the profiles of {plan.cards:,} cards")
            ProfileLoader(endpoints.postgres_dsn).load(world)
        endpoints = stack.up(directory, services=services)
        snapshot_s = 600 if plan.profiles else 0
        installed = Installation(
            endpoints, Topics(), directory / "job", world, wait_for_snapshot_s=snapshot_s
        )
        say("training the model")
        made = Rig(plan, installed, _roll_out(plan, installed))
        if plan.profiles:
            _wait_for_profiles(made, say)
        yield made
    finally:
        if made is not None:
            made.kill_job()
        say("stopping the servers")
        stack.down(directory)


def _roll_out(plan: Plan, installed: Installation) -> Champion:
    now_ms = int(time.time() * 1_000)
    servers, topic = installed.stack.bootstrap_servers, installed.topics.model_rollouts
    # one world for each: models of one world would be the same one
    champion, *others = (
        _trained(plan, plan.seed + number, installed, now_ms) for number in range(plan.shadows + 1)
    )
    policy = Policy(champion.threshold, champion.max_count_5m)
    publish(installation(champion.ref, policy, "bench", ACTOR, now_ms), servers, topic)
    if others:
        publish(_in_shadow(others, champion, now_ms), servers, topic)
    return champion


def _trained(plan: Plan, seed: int, installed: Installation, now_ms: int) -> Champion:
    # what a model learns from is over in seconds at such rates: fewer cards with the same habits have a past
    share = max(1.0, plan.rate * PAST_S / training.HISTORY)
    cards = max(FEWEST_CARDS, round(plan.cards / share))
    rate = plan.rate * cards / plan.cards
    tracking_uri = installed.stack.mlflow_tracking_uri
    return training.train(None, seed, cards, rate, False, tracking_uri, now_ms)[training.CHAMPION]


def _in_shadow(models: Sequence[Champion], champion: Champion, now_ms: int) -> tuple[Event, Event]:
    challengers = tuple(
        Challenger(f"shadow-{number}", SHADOW, 0, one.ref, Policy(one.threshold, champion.max_count_5m))
        for number, one in enumerate(models)
    )
    proposed = Event(
        Type.PROPOSED, "shadows", 1, "shadows/1", ACTOR, "measured", now_ms,
        champion=champion.ref, challengers=challengers, line=champion.ref.name,
    )  # fmt: skip
    return proposed, Event(Type.SHADOW_STARTED, "shadows", 2, "shadows/2", ACTOR, "measured", now_ms)


def _wait_for_profiles(made: Rig, say: Say) -> None:
    installed = made.installed
    rows = int(installed.world.cards.has_profile.sum())
    end = time.monotonic() + PATIENCE_S
    while (arrived := installed.count(installed.topics.profiles)) < rows:
        say(f"{arrived:,} of {rows:,} profiles are on their topic")
        if time.monotonic() > end:
            raise BenchError(f"{arrived:,} of {rows:,} profiles arrived; see `fraud stack logs connect`")
        time.sleep(POLL_S)

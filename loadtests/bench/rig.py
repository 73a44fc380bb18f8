"""A whole system to measure: embedded stack, champion, profiles, and the job as a process of its own."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.demo import training
from deploy.local import processes, stack
from deploy.local.processes import Server
from deploy.local.stack import Endpoints
from deploy.local.state import ALL, Service
from feature_store.errors import FraudError
from loadtests.simulator.profiles import ProfileLoader
from loadtests.simulator.world import World
from loadtests.topic_log import TopicLog
from models.policy import Policy
from models.rollouts import Rollout, publish
from streaming_job.settings import JobSettings

Say = Callable[[str], None]
START_S = 120.0
QUIET_S = 180.0
"""So long without any progress means that it will not come."""
POLL_S = 0.2
STOP_S = 60.0


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
    """Transactions per second of event time; the model learns from a history of the same rate."""
    profiles: bool = True
    """Whether there are profiles, by way of Postgres and Debezium."""


class Rig:
    """Servers and job of one measurement."""

    def __init__(self, plan: Plan, endpoints: Endpoints, world: World, settings: JobSettings) -> None:
        self.plan, self.endpoints, self.world, self.settings = plan, endpoints, world, settings
        self.log = TopicLog(endpoints.bootstrap_servers)
        self._job: Server | None = None

    @property
    def job_log(self) -> Path:
        """What the job prints."""
        return self.plan.data_dir / "logs" / "job.log"

    def start_job(self) -> None:
        """Start the job and wait until it runs.

        Raises:
            BenchError: it does not.
        """
        directory = self.plan.data_dir
        mark = f"card-fraud.bench-job={directory}"
        self._job = processes.spawn(
            [sys.executable, "-X", mark, "-m", "deploy.cli", "job", "run"],
            marker=mark,
            log=self.job_log,
            cwd=Path.cwd(),
            env={**os.environ, **self.settings.variables(), "PYTHONUNBUFFERED": "1"},
        )
        processes.wait_until(
            lambda: f"job {self.settings.job_id} runs" in self.job_log.read_text(errors="replace"),
            server=self._job, name="the job", log=self.job_log, deadline_s=START_S,
        )  # fmt: skip

    def stop_job(self) -> None:
        """Graceful stop."""
        if self._job is not None:
            processes.stop(self._job, patience_s=STOP_S)
            self._job = None

    def job_pid(self) -> int:
        """Of the driver."""
        assert self._job is not None
        return self._job.pid

    def check(self) -> None:
        """See that the job still runs.

        Raises:
            BenchError: it does not.
        """
        if self._job is not None and processes.running(self._job) is None:
            raise BenchError(f"the job ended; {self.job_log} ends with:\n{processes.tail(self.job_log)}")

    def lag(self) -> int:
        """Records of all inputs that the job has not committed."""
        topics = (self.settings.topics.transactions, *self.settings.topics.tables)
        committed = self.log.committed(self.settings.job_id, topics)
        ends = {(topic, part): end for topic in topics for part, end in self.log.ends(topic).items()}
        return sum(end - committed.get(place, 0) for place, end in ends.items())

    def catch_up(self, say: Say) -> None:
        """Wait until the job has committed everything there is.

        Raises:
            BenchError: it ended, or does not get on.
        """
        least, since = self.lag(), time.monotonic()
        while (lag := self.lag()) > 0:
            self.check()
            say(f"{lag:,} records to go")
            if lag < least:
                least, since = lag, time.monotonic()
            if time.monotonic() - since > QUIET_S:
                raise BenchError(f"the job does not get on, {lag:,} records are left; see {self.job_log}")
            time.sleep(POLL_S)

    def progress(self) -> list[dict[str, Any]]:
        """The job's progress records so far, in order."""
        return [
            json.loads(record.value or b"") for record in self.log.read(self.settings.topics.job_progress)
        ]


@contextmanager
def rig(plan: Plan, say: Say) -> Iterator[Rig]:
    """Bring servers, profiles and champion up; stop everything at the end, by pid.

    Raises:
        FraudError: a part does not come up.
    """
    directory = plan.data_dir
    stack.down(directory)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
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
        settings = JobSettings(
            bootstrap_servers=endpoints.bootstrap_servers,
            mlflow_tracking_uri=endpoints.mlflow_tracking_uri,
            checkpoint=str(directory / "checkpoint"),
            work_dir=directory / "work",
            ui_port=0,
            wait_for_snapshot_s=600 if plan.profiles else 0,
        )
        made = Rig(plan, endpoints, world, settings)
        say("training the model")
        _roll_out(plan, settings)
        if plan.profiles:
            _wait_for_profiles(made, say)
        yield made
    finally:
        if made is not None:
            made.stop_job()
        say("stopping the servers")
        stack.down(directory)


def _roll_out(plan: Plan, settings: JobSettings) -> None:
    now_ms = int(time.time() * 1_000)
    champion = training.train(None, plan.seed, plan.cards, plan.rate, settings.mlflow_tracking_uri, now_ms)
    policy = Policy(champion.threshold, champion.max_count_5m)
    rollout = Rollout("bench", champion.ref, policy, "fraud bench", now_ms)
    publish(rollout, settings.bootstrap_servers, settings.topics.model_rollouts)


def _wait_for_profiles(made: Rig, say: Say) -> None:
    rows = int(made.world.cards.has_profile.sum())
    end = time.monotonic() + QUIET_S
    while (arrived := sum(made.log.ends(made.settings.topics.profiles).values())) < rows:
        say(f"{arrived:,} of {rows:,} profiles are on their topic")
        if time.monotonic() > end:
            raise BenchError(f"{arrived:,} of {rows:,} profiles arrived; see `fraud stack logs connect`")
        time.sleep(POLL_S)

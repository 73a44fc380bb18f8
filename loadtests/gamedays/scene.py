"""A whole system on which game days are held: stack, job, traffic, sidecar, Prometheus."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from deploy.local import stack
from deploy.local.stack import Endpoints
from loadtests.faults.errors import FaultError
from loadtests.faults.installation import Installation, world
from loadtests.faults.job_process import PATIENCE_S, JobProcess
from loadtests.gamedays.journal import Journal
from loadtests.gamedays.traffic import Traffic
from loadtests.gamedays.watchers import Watchers, answer, watchers
from loadtests.simulator.profiles import ProfileLoader
from streaming_job.contracts.topics import Topics
from streaming_job.runtime.failpoints import Step

T = TypeVar("T")
POLL_S = 0.05

SETTINGS: dict[str, Any] = {
    # the limit of an epoch is ten times what epochs take: a game day cannot wait for ten times 20 s
    "epoch_s": 2.0,
    # a job of minutes gains nothing from a warm Java
    "warm_up_epochs": 3,
    "driver_java_options": "-XX:TieredStopAtLevel=1",
}


VELOCITY = 1_000
"""Transactions of a card in 5 minutes that alert: ten times what the traffic makes of one."""


class Scene:
    """The system, and the hands of an operator on it.

    Args:
        stack_dir: data directory of the stack.
        installed: the job's installation.
        seen_by: sidecar and Prometheus.
        traffic: what flows.
        journal: told what is done.
    """

    def __init__(
        self, stack_dir: Path, installed: Installation, seen_by: Watchers, traffic: Traffic, journal: Journal
    ) -> None:
        self.stack_dir, self.installed, self.journal = stack_dir, installed, journal
        self.seen_by, self.traffic = seen_by, traffic
        self.model = installed.roll_out(max_count_5m=VELOCITY)
        """What decides."""
        self.cleanup = ExitStack()
        """What ends with the scene."""
        self.job = installed.start()
        """The job that runs."""
        self.others: list[JobProcess] = []
        """More processes of the job, which end with the scene."""
        self.stopped: list[psutil.Process] = []
        """Processes that stand still."""
        self.has_limits = False
        """Whether the sidecar has learned its limits from what it measures."""
        self.kept: list[object] = []
        """What must not be collected as garbage before the scene ends, as a producer that hangs."""

    @property
    def stack(self) -> Endpoints:
        """Where the servers answer."""
        return self.installed.stack

    def tell(self, text: str) -> None:
        """Say in the journal what is done."""
        self.journal.tell("done", text)

    def start_job(self, **changes: object) -> None:
        """Start the job, some settings changed; the one before has ended."""
        self.job.kill()
        self.job = self.installed.start(**changes)

    def restart_job(self, **changes: object) -> None:
        """End the job in an orderly way, and start it with some settings changed."""
        self.job.terminate()
        self.start_job(**changes)

    def fraud(self, *arguments: str) -> str:
        """Run a command of the command line with the job's variables; what it prints.

        Raises:
            FaultError: its exit status is not 0.
        """
        done = subprocess.run(
            [sys.executable, "-m", "deploy.cli", *arguments],
            env={**os.environ, **self.installed.environment()},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise FaultError(f"`fraud {' '.join(arguments)}` failed: {done.stderr.strip()[-500:]}")
        return done.stdout.strip()

    def rollout(self, rollout_id: str) -> Any:
        """JSON of `/v1/rollouts/ID`."""
        return json.loads(answer(f"{self.seen_by.sidecar}v1/rollouts/{rollout_id}"))

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait until something is true, and return it.

        Raises:
            FaultError: it takes too long.
        """
        end = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            if time.monotonic() > end:
                raise FaultError(f"{what} did not come in {PATIENCE_S:.0f} s")
            time.sleep(POLL_S)
        return found

    def caught_up(self) -> None:
        """Wait until the job has decided everything so far; nothing is sent meanwhile.

        Raises:
            FaultError: it ended, or does not get on.
        """
        with self.traffic.paused():
            self.installed.caught_up(self.job)

    def hang(self, step: Step) -> None:
        """Let the process of the job that reaches a step next stand still there."""
        self.job.arm(step)
        self.hanging = self.until(lambda: self.job.reached(step), f"step {step}")
        """The process that stands still at a step."""
        self.tell(f"process {self.hanging.pid} hangs at step {step}")

    def pause(self, *processes: psutil.Process) -> None:
        """SIGSTOP."""
        for process in processes:
            process.suspend()
            self.stopped.append(process)

    def resume(self) -> None:
        """SIGCONT to whatever stands still."""
        for process in self.stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        self.stopped.clear()

    def close(self) -> None:
        """End the job's processes."""
        self.resume()
        for job in (self.job, *self.others):
            job.kill()
        self.cleanup.close()


@contextmanager
def servers(directory: Path) -> Iterator[Endpoints]:
    """The embedded stack with the profiles of some cards, stopped at the end."""
    with ExitStack() as cleanup:
        cleanup.callback(stack.down, directory)
        endpoints = stack.up(directory)
        ProfileLoader(endpoints.postgres_dsn).load(world())
        yield endpoints


@contextmanager
def scene(
    endpoints: Endpoints, stack_dir: Path, directory: Path, topics: Topics, journal: Journal, **settings: Any
) -> Iterator[Scene]:
    """A job at work on a stack; everything but the stack ends with the context.

    Args:
        endpoints: of the stack.
        stack_dir: its data directory.
        directory: for checkpoint, working copies and logs.
        topics: names that nobody else uses, but for the profiles'.
        journal: told what is done.
        settings: of the job, where they are not `SETTINGS`.

    Raises:
        FraudError: a part does not start.
    """
    with ExitStack() as cleanup:
        installed = Installation(endpoints, topics, directory, **{**SETTINGS, **settings})
        seen_by = cleanup.enter_context(watchers(directory, installed.environment()))
        traffic = Traffic(installed)
        made = Scene(stack_dir, installed, seen_by, traffic, journal)
        cleanup.callback(made.close)
        cleanup.enter_context(traffic)
        yield made

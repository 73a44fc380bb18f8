"""The system on which game days run: stack, job, traffic, sidecar, Prometheus."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from deploy.local import stack
from deploy.local.launch import FRAUD
from deploy.local.stack import Endpoints
from deploy.local.waiting import Patience
from loadtests.faults.errors import FaultError
from loadtests.faults.http_servers import get
from loadtests.faults.installation import Installation, world
from loadtests.faults.job_process import PATIENCE_S, JobProcess
from loadtests.gamedays.journal import Journal
from loadtests.gamedays.traffic import Traffic
from loadtests.gamedays.watchers import Watchers, watchers
from loadtests.simulator import profiles
from streaming_job.contracts.topics import Topics
from streaming_job.runtime.failpoints import Failpoint

T = TypeVar("T")
POLL_S = 0.05

SETTINGS: dict[str, Any] = {
    # the limit of an epoch's length is ten times the measured length, and 10 x 5 s is long to wait
    "epoch_s": 2.0,
}


VELOCITY = 1_000
"""A card with more transactions than this in 5 minutes alerts; the traffic has under a tenth as many."""


class Scene:
    """The system, with the actions of an operator."""

    def __init__(
        self, stack_dir: Path, installed: Installation, watchers: Watchers, traffic: Traffic, journal: Journal
    ) -> None:
        self.stack_dir, self.installed, self.journal = stack_dir, installed, journal
        self.watchers, self.traffic = watchers, traffic
        self.model = installed.roll_out(max_count_5m=VELOCITY)
        """The champion's rollout."""
        self.cleanup = ExitStack()
        """Callbacks that run at the end of the scene."""
        self.job = installed.start()
        self.others: list[JobProcess] = []
        """Further instances of the job, killed at the end of the scene."""
        self.stopped: list[psutil.Process] = []
        self.has_limits = False
        """Whether the sidecar has learned its limits for heartbeats and epochs in this scene."""
        self.referenced: list[object] = []
        """Objects that must not be garbage-collected before the scene ends, such as a hanging producer."""

    @property
    def stack(self) -> Endpoints:
        """Addresses of the servers."""
        return self.installed.stack

    def note(self, text: str) -> None:
        """Add an action to the journal."""
        self.journal.add("done", text)

    def note_end(self, what: str = "the job ends") -> int:
        """Wait until the job ends, and add its exit status, which is returned, to the journal."""
        status = self.job.exit_code()
        self.note(f"{what} with status {status}: {self.job.error}")
        return status

    def start_job(self, **changes: object) -> None:
        """Kill the job if it runs, and start it with some settings changed."""
        self.job.kill()
        self.job = self.installed.start(**changes)

    def restart_job(self, **changes: object) -> None:
        """Stop the job gracefully, and start it with some settings changed."""
        self.job.terminate()
        self.start_job(**changes)

    def fraud(self, *arguments: str) -> str:
        """Run a `fraud` command with the job's variables; returns its output.

        Raises:
            FaultError: its exit status is not 0.
        """
        done = subprocess.run(
            [*FRAUD, *arguments],
            env={**os.environ, **self.installed.environment()},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise FaultError(f"`fraud {' '.join(arguments)}` failed: {done.stderr.strip()[-500:]}")
        return done.stdout.strip()

    def rollout(self, rollout_id: str) -> Any:
        """Return the JSON of `/v1/rollouts/ID`."""
        return json.loads(get(f"{self.watchers.sidecar}v1/rollouts/{rollout_id}"))

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait until a condition is true, and return its value.

        Raises:
            FaultError: it is not true in time.
        """
        patience = Patience(PATIENCE_S, POLL_S)
        while not (value := condition()):
            patience.wait(lambda: FaultError(f"not within {PATIENCE_S:.0f} s: {what}"))
        return value

    def caught_up(self) -> None:
        """Wait until the job has decided everything sent so far; the traffic pauses meanwhile."""
        with self.traffic.paused():
            self.installed.caught_up(self.job)

    def hang(self, step: Failpoint) -> None:
        """Make the next job process that reaches a step hang there, and wait until one does."""
        self.job.arm(step)
        self.hanging = self.until(lambda: self.job.reached(step), f"step {step}")
        self.note(f"process {self.hanging.pid} hangs at step {step}")

    def pause(self, *processes: psutil.Process) -> None:
        """Stop processes with SIGSTOP."""
        for process in processes:
            process.suspend()
            self.stopped.append(process)

    def resume(self) -> None:
        """Continue all paused processes with SIGCONT."""
        for process in self.stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        self.stopped.clear()

    def close(self) -> None:
        """Resume paused processes, kill all instances of the job, then run the callbacks of `cleanup`."""
        self.resume()
        for job in (self.job, *self.others):
            job.kill()
        self.cleanup.close()


@contextmanager
def servers(directory: Path) -> Iterator[Endpoints]:
    """Run the embedded stack, with the profiles of some cards; stop it at the end."""
    with ExitStack() as cleanup:
        cleanup.callback(stack.down, directory)
        endpoints = stack.up(directory)
        profiles.load(endpoints.postgres_dsn, world())
        yield endpoints


@contextmanager
def scene(
    endpoints: Endpoints, stack_dir: Path, directory: Path, topics: Topics, journal: Journal, **settings: Any
) -> Iterator[Scene]:
    """Run job, traffic, sidecar and, if installed, Prometheus on a stack that outlives the context.

    Args:
        directory: gets checkpoint, working copies and logs.
        topics: topic names used by no other job, except that of the profiles.
        settings: settings of the job that differ from `SETTINGS`.
    """
    with ExitStack() as cleanup:
        installed = Installation(endpoints, topics, directory, **{**SETTINGS, **settings})
        watching = cleanup.enter_context(watchers(directory, installed.environment()))
        traffic = Traffic(installed)
        system = Scene(stack_dir, installed, watching, traffic, journal)
        cleanup.callback(system.close)
        cleanup.enter_context(traffic)
        yield system

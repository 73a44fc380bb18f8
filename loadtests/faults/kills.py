"""Kills of workers, jobs and servers; after each a job runs on the same checkpoint."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deploy.local import stack
from deploy.local.processes import wait_until_gone
from deploy.local.state import Service
from loadtests.faults.errors import FaultError
from loadtests.faults.job_process import PATIENCE_S
from loadtests.faults.relay import Relay
from streaming_job.runtime.failpoints import OF_EVERY_JOB, Failpoint

IN_WORKER = tuple(step for step in OF_EVERY_JOB if step is not Failpoint.EPOCH_ENDED)
"""Steps of a resident; the remaining step is the driver's."""


@dataclass(frozen=True)
class KillTarget:
    """A working job with its servers."""

    relay: Relay
    stack_dir: Path
    chance: random.Random

    def busy(self) -> None:
        """Give the job transactions and profile changes, and return at a random moment of its work."""
        self.relay.change_profiles(self.chance)
        # 0 commits, so that the moment can come before a job that has just started has committed anything
        commits, before = self.chance.choice((0, 1, 2, 4)), self.relay.installed.commits()
        self.relay.burst()
        self.relay.until(lambda: self.relay.installed.commits() >= before + commits, f"{commits} commits")
        time.sleep(self.chance.uniform(0, 1.0))

    def caught_up(self) -> None:
        """Wait until the running job has caught up."""
        self.relay.installed.caught_up(self.relay.job)


def worker_at(target: KillTarget, step: Failpoint) -> None:
    """Kill the resident that reaches a step; Spark repeats the resident's task."""
    target.relay.hang_at(step).kill()
    target.caught_up()


def job_at(target: KillTarget, step: Failpoint) -> None:
    """Kill the whole job while a process of it hangs at a step, and restart it."""
    relay = target.relay
    hanging = relay.hang_at(step)
    assert step in IN_WORKER or hanging.pid == relay.job.pid
    relay.job.kill()
    relay.restart()


def driver_only(target: KillTarget) -> None:
    """Kill the driver's Python process while a resident hangs at a step, and restart.

    The next job starts while the other processes still run. It may have to wait for the lock of a working
    copy, but the processes that hold the lock end by themselves.
    """
    relay = target.relay
    relay.hang_at(target.chance.choice(IN_WORKER))
    family = relay.job.kill_alone()
    relay.restart()
    wait_until_gone(family, PATIENCE_S)


def jvm(target: KillTarget) -> None:
    """Kill only Spark's JVM at any time of an epoch; the job must report this and end; then restart."""
    relay = target.relay
    relay.until(relay.job.epochs, "an epoch")  # without one the job would report that Spark does not start
    target.busy()
    relay.until(relay.job.jvm, "the JVM").kill()
    _require_error(relay, "Spark's JVM is gone")


def _require_error(relay: Relay, expected: str) -> None:
    """Wait until a failing job ends, check that its error names the cause, and start the next one."""
    if relay.job.exit_code() != 1 or expected not in relay.job.error:
        raise FaultError(f"the job did not end with {expected!r}: {relay.job.log[-3000:]}")
    relay.restart()


def job_any_time(target: KillTarget) -> None:
    """Kill driver, JVM and workers at any time of an epoch, and restart."""
    target.busy()
    target.relay.job.kill()
    target.relay.restart()


def server(target: KillTarget, service: Service) -> None:
    """Kill and restart a server; the job has to survive this."""
    # a job that starts while the brokers are away says so and ends after 15 s
    target.relay.until(target.relay.job.epochs, "an epoch")
    target.busy()
    stack.kill(target.stack_dir, service)
    stack.up(target.stack_dir)
    target.relay.change_profiles(target.chance)
    target.relay.burst()
    target.caught_up()


KILLS: dict[str, Callable[[KillTarget], None]] = {
    **{f"Python worker at step {step}": partial(worker_at, step=step) for step in IN_WORKER},
    **{f"job at step {step}": partial(job_at, step=step) for step in OF_EVERY_JOB},
    "driver only": driver_only,
    "JVM": jvm,
    "job at any time": job_any_time,
    "broker": partial(server, service="kafka"),
    "Postgres": partial(server, service="postgres"),
    "Connect": partial(server, service="connect"),
}


def draw(chance: random.Random, count: int) -> list[str]:
    """Draw names of kills, each equally often."""
    names: list[str] = []
    while len(names) < count:
        names += chance.sample(list(KILLS), len(KILLS))
    return names[:count]

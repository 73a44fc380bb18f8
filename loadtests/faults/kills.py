"""What is killed, and what has to go on afterwards: each kill leaves a job on the same checkpoint."""

import random
import time
from collections.abc import Callable
from pathlib import Path

from deploy.local import stack
from deploy.local.state import Service
from loadtests.faults.errors import FaultError
from loadtests.faults.job_process import wait_until_gone
from loadtests.faults.relay import Relay
from streaming_job.runtime.failpoints import Step

IN_WORKER = tuple(step for step in Step if step is not Step.EPOCH_ENDED)
"""Steps that a Python worker takes; the other one is the driver's."""


def worker_at(step: Step) -> Callable[["Scene"], None]:
    """SIGKILL to the Python worker that reaches a step; Spark repeats its task, the job goes on."""

    def kill(scene: "Scene") -> None:
        scene.relay.hang_at(step).kill()
        scene.caught_up()

    return kill


def job_at(step: Step) -> Callable[["Scene"], None]:
    """SIGKILL to driver, JVM and workers while one of them stands at a step, and a restart."""

    def kill(scene: "Scene") -> None:
        relay = scene.relay
        standing = relay.hang_at(step)
        assert step in IN_WORKER or standing.pid == relay.job.process.pid
        relay.job.kill()
        relay.restart()

    return kill


def driver_only(scene: "Scene") -> None:
    """SIGKILL to the driver's Python process while a worker stands at a step, and a restart.

    The next job starts while the rest still runs: it may have to wait for the lock of a working copy, for
    nothing that does not end by itself.
    """
    relay = scene.relay
    relay.hang_at(scene.chance.choice(IN_WORKER))
    family = relay.job.kill_driver_only()
    relay.restart()
    wait_until_gone(family)


def jvm(scene: "Scene") -> None:
    """SIGKILL to Spark's JVM alone, anywhere in an epoch: the job says so and ends; a restart."""
    relay = scene.relay
    relay.until(relay.job.epochs, "an epoch")  # one that is killed before is a Spark that does not start
    scene.busy()
    relay.until(relay.job.jvm, "the JVM").kill()
    _ends_and_says(relay, "Spark's JVM is gone")


def _ends_and_says(relay: Relay, words: str) -> None:
    """Wait for the end of a job that cannot go on, see that it names the cause, and start the next one."""
    if relay.job.exit_code() != 1 or words not in relay.job.error:
        raise FaultError(f"the job ended otherwise: {relay.job.log[-3000:]}")
    relay.restart()


def job_any_time(scene: "Scene") -> None:
    """SIGKILL to driver, JVM and workers anywhere in an epoch, and a restart."""
    scene.busy()
    scene.relay.job.kill()
    scene.relay.restart()


def server(service: Service) -> Callable[["Scene"], None]:
    """SIGKILL to a server and its restart; the job outlives both."""

    def kill(scene: "Scene") -> None:
        scene.busy()
        stack.kill(scene.stack_dir, service)
        stack.up(scene.stack_dir)
        scene.relay.change_profiles(scene.chance)
        scene.relay.burst()
        scene.caught_up()

    return kill


KILLS: dict[str, Callable[["Scene"], None]] = {
    **{f"Python worker at step {step}": worker_at(step) for step in IN_WORKER},
    **{f"job at step {step}": job_at(step) for step in Step},
    "driver only": driver_only,
    "JVM": jvm,
    "job at any time": job_any_time,
    "broker": server("kafka"),
    "Postgres": server("postgres"),
    "Connect": server("connect"),
}


class Scene:
    """A job at work, and what it works on."""

    def __init__(self, relay: Relay, stack_dir: Path, chance: random.Random) -> None:
        """Remember.

        Args:
            relay: the job.
            stack_dir: data directory of the servers.
            chance: decides about moments and changes.
        """
        self.relay, self.stack_dir, self.chance = relay, stack_dir, chance

    def busy(self) -> None:
        """Return at some moment at which the job has transactions and profile changes to work on."""
        self.relay.change_profiles(self.chance)
        # the job may have just been started: half of the moments are those of its first commits
        commits, before = self.chance.choice((0, 1, 2, 4)), self.relay.installed.commits()
        self.relay.burst()
        self.relay.until(lambda: self.relay.installed.commits() >= before + commits, f"{commits} commits")
        time.sleep(self.chance.uniform(0, 1.0))

    def caught_up(self) -> None:
        """See that the job that runs has not been hurt.

        Raises:
            FaultError: it has.
        """
        self.relay.installed.caught_up(self.relay.job)


def draw(chance: random.Random, count: int) -> list[str]:
    """Names of kills by chance, each equally often.

    Args:
        chance: draws them.
        count: how many.
    """
    names: list[str] = []
    while len(names) < count:
        names += chance.sample(list(KILLS), len(KILLS))
    return names[:count]

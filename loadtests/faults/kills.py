"""What is killed, and what has to go on afterwards: each kill leaves a job on the same checkpoint."""

import random
import time
from collections.abc import Callable
from pathlib import Path

from deploy.local import stack
from deploy.local.state import Service
from loadtests.faults.errors import FaultError
from loadtests.faults.job_process import gone
from loadtests.faults.relay import Relay
from streaming_job.runtime.failpoints import Step

IN_WORKER = (Step.DECODED, Step.APPLIED)
"""Steps that a Python worker takes; the others are the driver's."""


def driver_at(step: Step) -> Callable[["Scene"], None]:
    """SIGKILL to the driver at a step, and a restart.

    At a worker's step the driver's Python process alone is killed, and the next job starts while the rest
    still runs: it may have to wait for the lock of a working copy, for nothing that does not end by itself.
    """

    def kill(scene: "Scene") -> None:
        relay = scene.relay
        standing = relay.stand_still(step)
        if step in IN_WORKER:
            family = relay.job.kill_driver_only()
        else:
            assert standing.pid == relay.job.process.pid
            family = relay.job.descendants()
            relay.job.kill()
        relay.restart()
        gone(family)

    return kill


def worker(scene: "Scene") -> None:
    """SIGKILL to a Python worker while it changes state; Spark repeats the task."""
    scene.relay.stand_still(Step.APPLIED).kill()
    scene.caught_up()


def planner(scene: "Scene") -> None:
    """SIGKILL to the Python process that fixes where batches end: the job says so and ends; a restart."""
    relay = scene.relay
    relay.burst()
    relay.until(relay.job.batches, "a batch")
    relay.until(relay.job.planner, "the process that plans batches").kill()
    _ends_and_says(relay, "that fixes where batches end")


def jvm(scene: "Scene") -> None:
    """SIGKILL to Spark's JVM alone, anywhere in a batch: the job says so and ends; a restart."""
    relay = scene.relay
    scene.busy()
    relay.until(relay.job.jvm, "the JVM").kill()
    _ends_and_says(relay, "Spark's JVM is gone")


def _ends_and_says(relay: Relay, words: str) -> None:
    """Wait for the end of a job that cannot go on, see that it names the cause, and start the next one."""
    if relay.job.ended() != 1 or words not in relay.job.error:
        raise FaultError(f"the job ended otherwise: {relay.job.log[-3000:]}")
    relay.restart()


def job_any_time(scene: "Scene") -> None:
    """SIGKILL to driver, JVM and workers anywhere in a batch, and a restart."""
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
    **{f"driver at step {step}": driver_at(step) for step in Step},
    "Python worker": worker,
    "planning process": planner,
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
        # the job may have just been started: half of the moments are those of its first batches
        batches = self.chance.choice((0, 1, 2, 4))
        self.relay.burst()
        self.relay.until(lambda: self.relay.job.batches() >= batches, f"{batches} batches")
        time.sleep(self.chance.uniform(0, 1.0))

    def caught_up(self) -> None:
        """See that the job that runs has not been hurt.

        Raises:
            FaultError: it has.
        """
        self.relay.installed.caught_up(self.relay.job)


def drawn(chance: random.Random, count: int) -> list[str]:
    """Names of kills by chance, each equally often.

    Args:
        chance: draws them.
        count: how many.
    """
    names: list[str] = []
    while len(names) < count:
        names += chance.sample(list(KILLS), len(KILLS))
    return names[:count]

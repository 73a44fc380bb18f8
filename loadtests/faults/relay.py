"""A job and its successors on one checkpoint, with transactions and profile changes to keep it busy."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil
import psycopg

from deploy.local.waiting import Patience
from loadtests.audit.verify import AuditResult
from loadtests.faults.errors import FaultError
from loadtests.faults.installation import Installation, query_of
from loadtests.faults.job_process import PATIENCE_S, JobProcess
from loadtests.faults.repeater import Repeater
from streaming_job.runtime.failpoints import Failpoint

BURST = 600
"""Transactions around each fault, enough for several commits of each key group."""
DISTURBED = {"late": 0.02, "out_of_order": 0.05, "future": 0.005, "malformed": 0.02, "duplicated": 0.03}
POLL_S = 0.02

T = TypeVar("T")


class Relay:
    """Successive jobs on one checkpoint."""

    def __init__(self, installed: Installation, **settings: object) -> None:
        """Start the first job.

        Args:
            settings: settings of every job that differ from the installation's.
        """
        self.installed = installed
        # many commits, and checkpoints of the state between them
        self._settings: dict[str, object] = {"max_records": 200, "epoch_s": 2.0, **settings}
        self.job = installed.start(**self._settings)
        self.started = 1
        """Number of jobs so far."""

    def restart(self, release: Path | None = None, /, **changes: object) -> JobProcess:
        """Kill the job and start the next one on the same checkpoint.

        Args:
            release: directory of a release, whose packages run; default: the packages of this process.
            changes: changed settings.
        """
        self.job.kill()
        self.job = self.installed.start(release, **{**self._settings, **changes})
        self.started += 1
        return self.job

    def successor(self, before: str, directory: Path, **changes: object) -> JobProcess:
        """Start a job that takes over from that of a checkpoint, while the relay's job goes on.

        Args:
            before: the checkpoint, whose state it takes.
            directory: gets its own checkpoint, log and crash points: the other job passes the same steps.
        """
        takeover = {
            "checkpoint": str(directory / "checkpoint"),
            "predecessor": query_of(before),
            "predecessor_checkpoint": before,
        }
        return JobProcess(self.installed.environment(**{**self._settings, **takeover, **changes}), directory)

    def burst(self, events: int = BURST) -> None:
        """Send transactions, some of them late, out of order, in the future, malformed or repeated."""
        self.installed.send(events, **DISTURBED)

    def hang_at(self, step: Failpoint) -> psutil.Process:
        """Send transactions before and after arming a step; return the process that hangs there."""
        # send some before the step is armed, so that an epoch that ends right afterwards has state to save
        self.burst(BURST // 2)
        # wait until they are decided, so that the job does not hang before it has read a transaction
        self.installed.caught_up(self.job)
        self.job.arm(step)
        self.burst(BURST // 2)
        return self.until(lambda: self.job.reached(step), f"step {step}")

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait until a condition of the running job is true, and return its value.

        Raises:
            FaultError: the job ended first, or the condition is not true in time.
        """

        def error(limit: str) -> FaultError:
            return FaultError(f"not within {limit}: {what}; the job's log ends with: {self.job.log[-3000:]}")

        patience = Patience(PATIENCE_S, POLL_S)
        while not (value := condition()):
            if not self.job.runs:
                raise error("the life of the job")
            patience.wait(lambda: error(f"{PATIENCE_S:.0f} s"))
        return value

    def change_profiles(self, chance: random.Random, changes: int = 20) -> None:
        """Change the profiles of random cards in Postgres."""
        cards = self.installed.world.cards.ids
        with psycopg.connect(self.installed.stack.postgres_dsn) as connection:
            for _ in range(changes):
                connection.execute(
                    "update card_profiles set status = %s, credit_limit = %s where card_id = %s",
                    (
                        chance.choice(("active", "active", "blocked")),
                        chance.randrange(500, 20_000),
                        cards[chance.randrange(len(cards))].as_py(),
                    ),
                )

    def busy(self, every_s: float, events: int = 60) -> Repeater:
        """Send some transactions and profile changes at an interval, until the context is left."""
        chance = random.Random(7)

        def send() -> None:
            self.installed.send(events, late=0.02, out_of_order=0.05, malformed=0.02, duplicated=0.03)
            self.change_profiles(chance, 5)

        return Repeater(send, every_s)

    def audit(self) -> AuditResult:
        """Wait until the job has caught up, then audit its outputs."""
        self.installed.caught_up(self.job)
        return self.installed.audit()

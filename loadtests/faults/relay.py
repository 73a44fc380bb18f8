"""The job and, after its death, the next one; transactions and profile changes to keep it busy."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil
import psycopg

from loadtests.audit.verify import Verdict
from loadtests.faults.errors import FaultError
from loadtests.faults.installation import Installation
from loadtests.faults.job_process import PATIENCE_S, JobProcess
from streaming_job.runtime.failpoints import Step

BURST = 600
"""Transactions around each fault: several commits of each key group."""
DISTURBED = {"late": 0.02, "out_of_order": 0.05, "future": 0.005, "malformed": 0.02, "duplicated": 0.03}
POLL_S = 0.02

T = TypeVar("T")


class Relay:
    """Jobs one after the other, all on one checkpoint."""

    def __init__(self, installed: Installation, **settings: object) -> None:
        """Start the first one.

        Args:
            installed: its topics and checkpoint.
            settings: of every job, where they are not the installation's.
        """
        self.installed = installed
        # many transactions, and checkpoints of the state between them
        self._settings: dict[str, object] = {"max_records": 200, "epoch_s": 2.0, **settings}
        self.job = installed.start(**self._settings)
        self.started = 1
        """Jobs so far."""

    def restart(self, release: Path | None = None, /, **changes: object) -> JobProcess:
        """Start the next one, which goes on from the same checkpoint.

        Args:
            release: directory of the packages to run; default: those of this process.
            changes: of the settings.
        """
        self.job.kill()
        self.job = self.installed.start(release, **{**self._settings, **changes})
        self.started += 1
        return self.job

    def burst(self, events: int = BURST) -> None:
        """Send transactions, some of them late, broken or repeated."""
        self.installed.send(events, **DISTURBED)

    def hang_at(self, step: Step) -> psutil.Process:
        """Send transactions until a process of the job stands still at a step, and return that.

        Raises:
            FaultError: none does.
        """
        # some before, so that what ends an epoch finds something in it
        self.burst(BURST // 2)
        self.job.arm(step)
        self.burst(BURST // 2)
        return self.until(lambda: self.job.reached(step), f"step {step}")

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait until something is true of the job that runs, and return it.

        Raises:
            FaultError: the job ends first, or it takes too long.
        """
        end = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            if not self.job.runs or time.monotonic() > end:
                how = "did not come in time" if self.job.runs else "did not come before the job ended"
                raise FaultError(f"{what} {how}; the job's log ends with: {self.job.log[-3000:]}")
            time.sleep(POLL_S)
        return found

    def change_profiles(self, chance: random.Random, changes: int = 20) -> None:
        """Change profiles of some cards in Postgres."""
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

    def audit(self) -> Verdict:
        """See that everything so far has become what the oracle says.

        Raises:
            FaultError: it has not.
        """
        self.installed.caught_up(self.job)
        return self.installed.audit()

"""Kills, at named steps and at any time: afterwards the alerts are exactly the oracle's.

One installation for all of it: each kill happens to the job that the one before left to recover, and the
audit is of everything since the beginning, suspicious_count of every alert included.
"""

import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psutil
import pytest
from harness.installation import Installation
from harness.job_process import PATIENCE_S, JobProcess, gone
from thoroughness import THOROUGH

from streaming_job.crash_points import Step

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

WaitFor = Callable[..., object]
STEPS = tuple(Step) if THOROUGH else (Step.APPLIED, Step.OFFSETS_ADDED, Step.COMMITTED)
"""Every day one on each side of what is made durable; with FRAUD_HYPOTHESIS=thorough all of them."""
BURST = 600
"""Transactions around each kill: several batches of each job."""
DISTURBED = {"late": 0.02, "out_of_order": 0.05, "future": 0.005, "malformed": 0.02, "duplicated": 0.03}


class Relay:
    """The job and, after its death, the next one."""

    def __init__(self, installed: Installation) -> None:
        self.installed = installed
        self._settings: dict[str, object] = {"max_records_per_batch": 200}
        self.job = installed.start(**self._settings)

    def restart(self, **changes: object) -> JobProcess:
        """Start the next one, which goes on from the same checkpoint."""
        self.job.kill()
        self.job = self.installed.start(**{**self._settings, **changes})
        return self.job

    def audit(self) -> None:
        """Everything so far has become what the oracle says."""
        self.installed.caught_up(self.job)
        self.installed.audit()


@pytest.fixture(scope="module")
def relay(installed: Installation) -> Iterator[Relay]:
    made = Relay(installed)
    try:
        yield made
    finally:
        made.job.kill()


@pytest.fixture
def stand_still(relay: Relay, wait_for: WaitFor) -> Callable[[Step], psutil.Process]:
    """Sends transactions until a process of the running job stands still at a step."""

    def reach(step: Step) -> psutil.Process:
        relay.job.arm(step)
        relay.installed.send(BURST, **DISTURBED)
        pid = wait_for(lambda: relay.job.reached(step), deadline_s=PATIENCE_S, what=f"step {step}")
        assert isinstance(pid, int)
        return psutil.Process(pid)

    return reach


@pytest.mark.parametrize("step", STEPS)
def test_job_killed_at_a_step_goes_on_without_loss_or_repetition(
    relay: Relay, stand_still: Callable[[Step], psutil.Process], step: Step
) -> None:
    process = stand_still(step)
    in_worker = step in (Step.DECODED, Step.APPLIED)
    assert in_worker == (process.pid != relay.job.process.pid)
    if in_worker:
        # the driver alone; the next one starts while the rest still runs: it may have to wait for the lock of
        # a working copy, but for nothing that does not end by itself
        family = relay.job.kill_driver_only()
        assert process in family
    else:
        family = relay.job.descendants()
        relay.job.kill()
    job = relay.restart()
    relay.audit()
    gone(family)
    assert ("had been written before" in job.log) == (step is Step.COMMITTED)


def test_killed_worker_is_survived_by_the_stream(
    relay: Relay, stand_still: Callable[[Step], psutil.Process]
) -> None:
    worker = stand_still(Step.APPLIED)
    worker.kill()
    relay.audit()


def test_kills_at_any_time_while_transactions_flow(relay: Relay, wait_for: WaitFor) -> None:
    chance = random.Random(20)
    ended = threading.Event()

    def flow() -> None:
        while not ended.is_set():
            # never far ahead of the job: cards with hundreds of payments are no longer exact
            if sum(relay.installed.lag().values()) < 2 * BURST:
                relay.installed.send(100, **DISTURBED)
            ended.wait(0.2)

    sender = threading.Thread(target=flow)
    sender.start()
    try:
        for _ in range(2):
            batches = chance.randrange(1, 6)
            wait_for(
                lambda n=batches: relay.job.batches() >= n, deadline_s=PATIENCE_S, what=f"{batches} batches"
            )
            ended.wait(chance.uniform(0, 0.5))  # anywhere in a batch
            relay.job.kill()
            relay.restart()
    finally:
        ended.set()
        sender.join()
    relay.audit()


def test_second_instance_takes_over(relay: Relay, wait_for: WaitFor) -> None:
    first = relay.job
    with ExitStack() as cleanup:
        cleanup.callback(first.kill)
        second = relay.installed.start()
        relay.job = second
        wait_for(lambda: " runs" in second.log, deadline_s=PATIENCE_S, what="the second instance")
        relay.installed.send(BURST, **DISTURBED)
        assert first.ended() == 3
        assert first.error.startswith("error: another instance of job ")
    if not second.runs:  # both ran into the same batch; the next start goes on
        relay.restart()
    relay.audit()


def test_wrong_checkpoints_are_refused_at_the_start(relay: Relay) -> None:
    installed, rolled_back = relay.installed, relay.installed.directory / "rolled-back"
    relay.job.process.send_signal(signal.SIGTERM)
    assert relay.job.ended() == 0
    shutil.copytree(installed.settings.checkpoint, rolled_back)
    relay.restart()
    installed.send(BURST, **DISTURBED)
    relay.audit()
    relay.job.kill()
    before = len(installed.read(installed.topics.job_progress))
    wrong: list[tuple[dict[str, object], str]] = [
        ({"checkpoint": installed.directory / "lost"}, "error: the checkpoint is empty, but job "),
        ({"checkpoint": rolled_back}, "error: the topics are at batch "),
        ({"key_groups": 3}, "error: the checkpoint has 2 key groups, the settings ask for 3; "),
    ]
    with ExitStack() as cleanup:
        jobs = [cleanup.enter_context(installed.start(**changes)) for changes, _ in wrong]
        for job, (_, words) in zip(jobs, wrong, strict=True):
            assert job.ended() == 1, job.log
            assert job.error.startswith(words)
    assert len(installed.read(installed.topics.job_progress)) == before
    installed.audit()

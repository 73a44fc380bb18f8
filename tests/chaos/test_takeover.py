"""A successor takes the output of a running job over, while transactions and profile changes flow.

Each takeover continues the same output under the same job id; the audit covers everything since the
beginning. All tests follow one another on one installation, as a job is changed in its life.
"""

import shutil
from collections.abc import Callable

import pytest
from thoroughness import only_thorough

from loadtests.faults.installation import query_of
from loadtests.faults.job_process import JobProcess
from loadtests.faults.relay import Relay
from streaming_job.runtime.failpoints import Failpoint
from streaming_job.takeover.handover import TOOK_OVER

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600), only_thorough]

IN_SILENCE = "deciding in silence"
PACE_S = 0.2


class Lineage:
    """Jobs that take over from one another."""

    def __init__(self, relay: Relay) -> None:
        """Begin with the relay's job."""
        self.relay, self.installed = relay, relay.installed
        self.checkpoints = [self.installed.settings.checkpoint]
        """Those of all jobs so far; the output is that of the last."""

    def new_checkpoint(self) -> str:
        """The place of an empty checkpoint."""
        return str(self.installed.directory / f"checkpoint-{len(self.checkpoints)}")

    def start(self, checkpoint: str, **changes: object) -> JobProcess:
        """Start a job on a checkpoint; the running one goes on."""
        settings = {"max_records": 200, "epoch_s": 2.0, "checkpoint": checkpoint, **changes}
        return self.installed.start(**settings)

    def succeed(self, checkpoint: str, **changes: object) -> JobProcess:
        """Start a successor of the last job."""
        job = self.start(checkpoint, predecessor=query_of(self.checkpoints[-1]), **changes)
        self.checkpoints.append(checkpoint)
        return job

    def take_over(self, successor: JobProcess) -> None:
        """Wait until a successor has taken over."""
        before, self.relay.job = self.relay.job, successor
        self.relay.until(lambda: TOOK_OVER in successor.log, "the takeover")
        assert before.exit_code() == 3, before.log


@pytest.fixture(scope="module")
def lineage(relay: Relay) -> Lineage:
    relay.until(relay.job.epochs, "an epoch")
    return Lineage(relay)


def test_another_number_of_key_groups_takes_over_while_the_predecessor_decides(lineage: Lineage) -> None:
    state_of = lineage.checkpoints[-1]
    with lineage.relay.busy(PACE_S):
        relay = lineage.relay
        relay.until(lambda: relay.job.epochs() > 1, "saved states")
        successor = lineage.succeed(lineage.new_checkpoint(), key_groups=1, predecessor_checkpoint=state_of)
        lineage.take_over(successor)
    lineage.relay.audit()


def test_a_successor_killed_between_claims_and_seam_takes_over_when_it_is_started_again(
    lineage: Lineage,
) -> None:
    relay, before = lineage.relay, lineage.checkpoints[-1]
    with relay.busy(PACE_S):
        successor = lineage.succeed(lineage.new_checkpoint(), predecessor_checkpoint=before)
        successor.arm(Failpoint.CLAIMED)
        predecessor, relay.job = relay.job, successor
        relay.until(lambda: successor.reached(Failpoint.CLAIMED), "the claims")
        assert predecessor.exit_code() == 3, predecessor.log
        successor.kill()
        # the output has not changed its owner yet, but may do so at any time
        with lineage.start(before, key_groups=1) as refused:
            assert refused.exit_code() == 1
            assert "has begun to take over" in refused.error
        relay.job = lineage.start(lineage.checkpoints[-1], predecessor=query_of(before))
        relay.until(lambda: TOOK_OVER in relay.job.log, "the takeover")
    relay.audit()


def test_a_successor_killed_after_the_seam_continues(lineage: Lineage) -> None:
    relay = lineage.relay
    with relay.busy(PACE_S):
        successor = lineage.succeed(lineage.new_checkpoint(), key_groups=1)
        successor.arm(Failpoint.SEAM)
        relay.job = successor
        relay.until(lambda: successor.reached(Failpoint.SEAM), "the seam")
        successor.kill()
        relay.job = lineage.start(lineage.checkpoints[-1], key_groups=1)
        relay.until(relay.job.epochs, "an epoch")
    relay.audit()


def test_a_predecessor_takes_its_output_back(lineage: Lineage) -> None:
    relay = lineage.relay
    with relay.busy(PACE_S):
        lineage.take_over(lineage.succeed(lineage.checkpoints[-2], key_groups=2))
    relay.audit()


def test_of_two_successors_one_takes_over(lineage: Lineage, wait_for: Callable[..., object]) -> None:
    relay = lineage.relay
    predecessor = query_of(lineage.checkpoints[-1])
    with relay.busy(PACE_S):
        one, other = (
            lineage.start(f"{lineage.new_checkpoint()}-{name}", predecessor=predecessor)
            for name in ("one", "other")
        )
        wait_for(lambda: not (one.runs and other.runs), deadline_s=120, what="the end of one")
        winner, loser = (one, other) if one.runs else (other, one)
        assert loser.exit_code() in (1, 3), loser.log
        lineage.checkpoints.append(f"{lineage.new_checkpoint()}-{'one' if winner is one else 'other'}")
        lineage.take_over(winner)
    relay.audit()


def test_a_job_whose_checkpoint_is_lost_continues_with_an_empty_one(lineage: Lineage) -> None:
    relay = lineage.relay
    relay.burst()
    predecessor = query_of(lineage.checkpoints[-1])
    relay.job.kill()
    shutil.rmtree(lineage.checkpoints[-1])
    relay.burst()
    checkpoint = lineage.new_checkpoint()
    with lineage.start(checkpoint) as refused:
        assert refused.exit_code() == 1
        assert f"set FRAUD_PREDECESSOR={predecessor}" in refused.error
    # the epoch that reads the log ends as soon as the state has reached the output
    relay.job = lineage.start(checkpoint, predecessor=predecessor, epoch_s=600.0)
    relay.until(lambda: TOOK_OVER in relay.job.log, "the takeover")
    relay.audit()

"""The cards of a running job move: to another topic and partitioner, to more partitions, to a third topic.

All tests follow one another on one installation; the audit covers everything since the beginning.
"""

import random
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from thoroughness import only_thorough
from typer.testing import CliRunner

from deploy import cli
from deploy.local import topics as broker
from loadtests.audit.verify import AuditResult
from loadtests.faults.installation import query_of
from loadtests.faults.job_process import JobProcess
from loadtests.faults.relay import Relay
from loadtests.faults.repeater import Repeater
from streaming_job.log.partitioner import Partitioner
from streaming_job.runtime.failpoints import Failpoint
from streaming_job.settings import JobSettings
from streaming_job.takeover.handover import TOOK_OVER

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3000), only_thorough]

LATE = 25


class Mover:
    """Jobs of an installation whose cards move."""

    def __init__(self, relay: Relay) -> None:
        """Begin with the relay's job."""
        self.relay, self.installed = relay, relay.installed
        self.left: tuple[str, ...] = ()
        """Topics that the transactions have left."""
        self._late = 0
        self._checkpoints = 0

    def begin(self) -> JobSettings:
        """Let the job decide some transactions; return its settings."""
        self.relay.until(self.relay.job.epochs, "an epoch")
        self._busy()
        return self.installed.settings

    def _busy(self) -> None:
        for _ in range(3):
            self.relay.burst()
            self.relay.change_profiles(random.Random(3))
        self.installed.caught_up(self.relay.job)

    def run(self, settings: JobSettings, **changes: object) -> JobProcess:
        """Start a job."""
        of_these = {"topics": settings.topics, "partitioner": settings.partitioner, **changes}
        checkpoint = {"checkpoint": settings.checkpoint, "key_groups": settings.key_groups}
        return self.installed.start(max_records=200, epoch_s=2.0, **{**checkpoint, **of_these})

    def drain(self, settings: JobSettings) -> None:
        """Run a job to the end of its inputs; it ends by itself."""
        with self.run(settings, drain=True) as job:
            assert job.exit_code() == 0, job.log
            assert "drained: all is decided up to" in job.log

    def successor_of(self, settings: JobSettings, **changes: object) -> JobSettings:
        """The settings of a job that takes over where the transactions are now."""
        self._checkpoints += 1
        predecessor = {
            "checkpoint": f"{self.installed.settings.checkpoint}-{self._checkpoints}",
            "predecessor": query_of(settings.checkpoint),
            "predecessor_checkpoint": settings.checkpoint,
            "retired_transactions": self.left,
        }
        return self.installed.settings.model_copy(update={**predecessor, **changes})

    def start(self, settings: JobSettings) -> JobProcess:
        """Start a successor."""
        names = ("predecessor", "predecessor_checkpoint", "retired_transactions")
        return self.run(settings, **{name: getattr(settings, name) for name in names})

    def take_over(self, settings: JobSettings) -> None:
        """Start a successor, which becomes the relay's job, and wait until it has taken over."""
        self.relay.job = self.start(settings)
        self.relay.until(lambda: TOOK_OVER in self.relay.job.log, "the takeover")

    def steps(self, settings: JobSettings, *target: str) -> list[str]:
        """The lines of the command that names the steps to a topic."""
        arguments = ["job", "status", "--move-to", *target]
        shown = CliRunner().invoke(cli.app, arguments, env=settings.variables())
        print(shown.stdout)
        return shown.stdout.splitlines()

    def write_late(self) -> None:
        """Write to the topics that the transactions have left."""
        for topic in self.left:
            for number in range(LATE):
                self.installed.produce(topic, b"c", b'{"late": %d}' % number)
        self.installed.flush()
        self._late += LATE * len(self.left)

    def audit(self) -> AuditResult:
        """Audit everything since the beginning; all late records must be dead letters."""
        verdict = self.relay.audit()
        self.relay.until(
            lambda: self.installed.reasons()["retired_topic"] == self._late, "the letters of late records"
        )
        return verdict


@pytest.fixture(scope="module")
def mover(relay: Relay) -> Mover:
    return Mover(relay)


def test_to_another_topic_with_more_partitions_and_the_other_partitioner(mover: Mover) -> None:
    relay, installed, before = mover.relay, mover.installed, mover.begin()
    old = before.topics.transactions
    mover.left = (old,)
    with Repeater(lambda: installed.send(60), 0.2):  # the predecessor is busy
        topics = before.topics.model_copy(update={"transactions": f"{old}-1"})
        broker.create(before.bootstrap_servers, topics, partitions=3)
        early = mover.start(mover.successor_of(before, topics=topics))
        assert early.exit_code() == 1, early.log
        assert "drain the predecessor (FRAUD_DRAIN=true)" in early.error
        assert relay.job.runs
    # the producers write to the new topic from here on; the job still runs on the old one
    installed.move(f"{old}-2", Partitioner.CRC32, partitions=5)
    relay.burst()
    target = (f"{old}-2", "--partitioner", "crc32")
    mover.steps(before, *target)
    relay.job.ask_to_end()
    assert relay.job.exit_code() == 0, relay.job.log
    mover.drain(before)
    assert [line[:9] for line in mover.steps(before, *target)[1:]] == [
        "1. [done]", "2. [done]", "3. [done]", "4. [now] "
    ]  # fmt: skip
    after = mover.successor_of(before, key_groups=3)
    with mover.start(after.model_copy(update={"retired_transactions": ()})) as unnamed:
        assert unnamed.exit_code() == 1
        assert f"set FRAUD_RETIRED_TRANSACTIONS={old}" in unnamed.error
    after = mover.successor_of(before, key_groups=3)
    killed = mover.start(after)
    killed.arm(Failpoint.CLAIMED)
    relay.job = killed
    relay.until(lambda: killed.reached(Failpoint.CLAIMED), "the claims")
    killed.kill()
    mover.take_over(after)
    mover.write_late()
    relay.burst()
    verdict = mover.audit()
    assert verdict.dead_letters["retired_topic"] == LATE
    assert mover.steps(after, *target)[2].endswith(f"records that came too late so far: {LATE}")
    assert installed.settings.topics.transactions != old
    installed.settings = after


def test_a_restart_continues_on_the_new_topic_and_still_refuses_the_old_one(mover: Mover) -> None:
    relay = mover.relay
    relay.job.kill()
    mover.write_late()
    relay.job = mover.start(mover.installed.settings)
    relay.burst()
    mover.audit()


def test_to_partitions_that_were_added_by_hand(mover: Mover, wait_for: Callable[..., object]) -> None:
    relay, installed, before = mover.relay, mover.installed, mover.installed.settings
    admin = AdminClient({"bootstrap.servers": before.bootstrap_servers})
    topic = before.topics.transactions
    admin.create_partitions([NewPartitions(topic, 8)])[topic].result()
    # within ten seconds the job notices, and ends
    wait_for(lambda: not relay.job.runs, deadline_s=60, what="the end of the job")
    assert f"`fraud job status --move-to {topic}`" in relay.job.error
    mover.steps(before, topic)
    mover.drain(before)
    installed.move(topic, Partitioner.CRC32, partitions=8)
    after = mover.successor_of(before, key_groups=2)
    mover.take_over(after)
    relay.burst()
    mover.write_late()
    mover.audit()
    installed.settings = after


def test_to_a_third_topic_while_producers_still_write_to_both_former_ones(mover: Mover) -> None:
    relay, installed, before = mover.relay, mover.installed, mover.installed.settings
    first, old = *mover.left, before.topics.transactions
    installed.move(f"{old}-3", Partitioner.MURMUR2, partitions=3)
    relay.burst()
    relay.job.ask_to_end()
    assert relay.job.exit_code() == 0, relay.job.log
    mover.drain(before)
    mover.left = (first, old)
    assert f"FRAUD_RETIRED_TRANSACTIONS={first},{old} " in "".join(mover.steps(before, f"{old}-3"))
    after = mover.successor_of(before, key_groups=3)
    with mover.start(after.model_copy(update={"retired_transactions": (old,)})) as forgetful:
        assert forgetful.exit_code() == 1
        assert f"lacks {first}, whose later records the predecessor refuses" in forgetful.error
    after = mover.successor_of(before, key_groups=3)
    mover.take_over(after)
    mover.write_late()
    relay.burst()
    mover.audit()

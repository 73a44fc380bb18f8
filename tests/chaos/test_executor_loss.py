"""Settings alone make a job run on several executors; one is killed within an epoch, or within a takeover."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.spark_cluster import SparkCluster
from thoroughness import only_thorough

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation, world
from loadtests.faults.relay import Relay
from loadtests.simulator import profiles
from streaming_job.contracts.topics import Topics
from streaming_job.runtime.failpoints import VARIABLE, Failpoint
from streaming_job.takeover.handover import TOOK_OVER

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), only_thorough]

SLOTS = re.compile(r" WARNING (\d+) task slots for 2 key groups: ")
PACE_S = 0.5


def test_an_executor_killed_within_an_epoch_is_replaced_without_loss_or_repetition(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path
) -> None:
    crash_points, topics = tmp_path / "crash-points", topic_names()
    broker.create(stack.bootstrap_servers, topics, partitions=4)
    environment = {VARIABLE: str(crash_points)}
    with SparkCluster(tmp_path / "cluster", executors=2, environment=environment) as cluster:
        installed = Installation(
            stack,
            topics,
            tmp_path,
            master=cluster.url,
            spark={**cluster.executor, **cluster.security},
        )
        installed.roll_out()
        relay = Relay(installed)
        with relay.job:
            relay.burst()
            installed.caught_up(relay.job)
            assert len(cluster.executors()) == 2
            worker = relay.hang_at(Failpoint.DECIDED)
            (executor,) = set(worker.parents()) & set(cluster.executors())
            executor.kill()
            installed.caught_up(relay.job)
            assert executor not in cluster.executors()
            relay.until(lambda: len(cluster.executors()) == 2, "a new executor")
            relay.until(lambda: SLOTS.findall(relay.job.log)[-2:] == ["1", "2"], "words about task slots")
            relay.burst()
            relay.audit()
            assert relay.job.terminate() == 0, relay.job.log


@pytest.mark.parametrize(
    ("step", "is_over"),
    [
        pytest.param(None, False, id="in the first epoch, which takes the predecessor's state"),
        pytest.param(Failpoint.TAKEN, False, id="while a group decides in silence"),
        pytest.param(Failpoint.SEAM, False, id="after the seam, before the groups are opened"),
        pytest.param(Failpoint.BEGUN, True, id="in the first transaction after the seam"),
    ],
)
def test_an_executor_killed_within_a_takeover_is_replaced_without_loss_or_repetition(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path, step: Failpoint | None, is_over: bool
) -> None:
    """The predecessor of three key groups runs in its own process, the successor of two on the cluster."""
    topics, directory = topic_names(), tmp_path / "successor"
    broker.create(stack.bootstrap_servers, topics, partitions=4)
    profiles.load(stack.postgres_dsn, world())
    installed = Installation(stack, topics, tmp_path)
    installed.roll_out()
    relay, before = Relay(installed, key_groups=3), installed.settings.checkpoint
    environment = {VARIABLE: str(directory / "crash-points")}
    with (
        SparkCluster(tmp_path / "cluster", executors=2, environment=environment) as cluster,
        relay.job as predecessor,
    ):
        relay.burst()
        relay.until(lambda: predecessor.epochs() > 1, "saved states")
        # made by the task of key group 1 in the first epoch
        first_state = directory / "checkpoint" / "state" / "0" / "1"
        with relay.successor(
            before,
            directory,
            key_groups=2,
            master=cluster.url,
            spark={**cluster.executor, **cluster.security},
        ) as successor:
            relay.job = successor
            with relay.busy(PACE_S):
                if step is None:
                    relay.until(first_state.exists, "the first state")
                    relay.until(lambda: len(cluster.executors()) == 2, "executors")
                    killed = cluster.executors()[0]
                else:
                    successor.arm(step)
                    hanging = relay.until(lambda: successor.reached(step), f"step {step}")
                    (killed, *_) = set(hanging.parents()) & set(cluster.executors()) or cluster.executors()
                    assert (killed in hanging.parents()) == (step is not Failpoint.SEAM)
                assert (successor.epochs() > 0, TOOK_OVER in successor.log) == (step is not None, is_over)
                killed.kill()
                if step is Failpoint.SEAM:
                    successor.release(hanging)
                relay.until(lambda: TOOK_OVER in successor.log, "the takeover")
                assert predecessor.exit_code() == 3, predecessor.log
                relay.until(lambda: len(cluster.executors()) == 2, "a new executor")
                assert killed not in cluster.executors()
            relay.audit()
            relay.burst()
            relay.audit()
            assert successor.terminate() == 0, successor.log

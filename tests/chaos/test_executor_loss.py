"""Settings alone make a job run on several executors; one executor is killed within an epoch."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.spark_cluster import SparkCluster
from thoroughness import only_thorough

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from loadtests.faults.relay import Relay
from streaming_job.contracts.topics import Topics
from streaming_job.runtime.failpoints import VARIABLE, Failpoint

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600), only_thorough]

SLOTS = re.compile(r" WARNING (\d+) task slots for 2 key groups: ")


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

"""The same job on several executors, by settings alone; one of them is killed in the middle of a batch."""

from collections.abc import Callable
from pathlib import Path

import pytest
from harness.spark_cluster import MEMORY, SparkCluster
from thoroughness import only_thorough

from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from loadtests.faults.relay import Relay
from streaming_job.contracts.topics import Topics
from streaming_job.runtime.failpoints import VARIABLE, Step

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600), only_thorough]


def test_executor_killed_in_a_batch_is_replaced_without_loss_or_repetition(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path
) -> None:
    crash_points = tmp_path / "crash-points"
    with SparkCluster(tmp_path / "cluster", workers=2, environment={VARIABLE: str(crash_points)}) as cluster:
        installed = Installation(
            stack,
            topic_names(),
            tmp_path,
            master=cluster.url,
            spark={"spark.executor.cores": "1", "spark.executor.memory": MEMORY},
        )
        installed.roll_out()
        relay = Relay(installed)
        with relay.job:
            relay.burst()
            relay.audit()
            assert len(cluster.executors()) == 2
            worker = relay.stand_still(Step.APPLIED)
            (executor,) = set(worker.parents()) & set(cluster.executors())
            executor.kill()
            relay.audit()
            relay.burst()
            relay.audit()
            assert executor not in cluster.executors()
            relay.until(lambda: len(cluster.executors()) == 2, "a new executor")

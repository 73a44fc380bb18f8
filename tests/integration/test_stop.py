"""Stops of a job whose tasks wait for something."""

import time
from collections.abc import Callable

import pytest
from thoroughness import only_thorough

from loadtests.faults.installation import Installation
from streaming_job.runtime.failpoints import Failpoint

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), only_thorough]

FEW_S = 40.0
"""Much less than the waits of a task, and than what supervisors allow; the tests share the machine."""


def test_a_stop_while_the_registry_is_down_takes_a_few_seconds(
    installed: Installation, wait_for: Callable[..., object]
) -> None:
    installed.send(100)
    nowhere = installed.directory / "empty"
    with installed.start(mlflow_tracking_uri="http://127.0.0.1:9", work_dir=nowhere) as job:
        wait_for(lambda: "no decisions until model" in job.log, deadline_s=120)
        begun = time.monotonic()
        assert job.terminate() == 0
        assert time.monotonic() - begun < FEW_S
        assert "the last epoch is not saved" in job.log
    with installed.start() as job:
        installed.caught_up(job)
        installed.audit()


def test_a_task_that_does_not_look_at_the_stop_request_is_killed(
    installed: Installation, wait_for: Callable[..., object]
) -> None:
    with installed.start() as job:
        installed.send(100)
        installed.caught_up(job)
        job.arm(Failpoint.TAKEN)
        installed.send(100)
        wait_for(lambda: job.reached(Failpoint.TAKEN))
        begun = time.monotonic()
        assert job.terminate() == 0
        assert time.monotonic() - begun < 20 + FEW_S
        assert "the last epoch is not saved" in job.log
    with installed.start() as job:
        installed.caught_up(job)
        installed.audit()

"""Ctrl-C, as a terminal sends it: SIGINT to all processes of a command that runs until it is stopped."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local.child import Child
from deploy.local.launch import FRAUD
from loadtests.faults.installation import Installation

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
WaitFor = Callable[..., object]


def interrupt(process: Child, runs: str, wait_for: WaitFor) -> None:
    """Press Ctrl-C once the log of a command has a text: it has to end cleanly, and with status 0."""
    wait_for(lambda: runs in process.log or not process.runs, deadline_s=120, what=runs)
    os.killpg(process.pid, signal.SIGINT)
    assert process.exit_code(60.0) == 0, process.log
    assert runs in process.log
    assert "Traceback" not in process.log
    assert "error" not in process.log.lower()


def test_ctrl_c_ends_the_job(installed: Installation, wait_for: WaitFor) -> None:
    with installed.start() as job:
        installed.send(300)
        installed.caught_up(job)
        interrupt(job, "runs", wait_for)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        (("archive", "run", "archive", "--metrics-port", "0"), "metrics: http"),
        (("verify", "--follow", "--metrics-port", "0"), "metrics at http"),
        (("replay", "start", "again", "--follow"), "to go"),
    ],
)
def test_ctrl_c_ends_what_follows_a_job(
    installed: Installation, tmp_path: Path, wait_for: WaitFor, command: tuple[str, ...], runs: str
) -> None:
    variables = installed.environment(bootstrap_servers=installed.stack.bootstrap_servers, kafka={})
    with Child(command[0], [*FRAUD, *command], tmp_path / "log", variables, cwd=tmp_path) as process:
        interrupt(process, runs, wait_for)

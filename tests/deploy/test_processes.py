import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deploy.local import launch, processes
from deploy.local.errors import ProcessError
from deploy.local.processes import Server

pytestmark = pytest.mark.unit

OBEYS = "import signal, sys; print('ready', flush=True); signal.pause()"
DEAF = (
    "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True)\nwhile True: signal.pause()"
)
PARENT = (
    "import subprocess, sys, signal; child = subprocess.Popen(['sleep', '1000']);"
    " print('ready', child.pid, flush=True); signal.pause()"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def start(code: str, log: Path) -> Server:
    marker = f"--marker={log}"
    command = [sys.executable, "-c", code, marker]
    server = processes.spawn(command, marker=marker, log=log, cwd=log.parent, env=os.environ)
    processes.wait_until(
        lambda: b"ready" in log.read_bytes(), server=server, name="it", log=log, deadline_s=20
    )
    return server


def test_server_is_recognised_and_stopped(log: Path) -> None:
    server = start(OBEYS, log)
    assert processes.running(server)
    assert processes.find(server.marker) == server
    assert processes.stop(server)
    assert processes.running(server) is None
    assert processes.find(server.marker) is None
    assert not processes.stop(server)


def test_process_with_the_same_pid_is_not_touched(log: Path) -> None:
    server = start(OBEYS, log)
    for other in (replace(server, created=server.created - 3600), replace(server, marker="--marker=another")):
        assert processes.running(other) is None
        assert not processes.stop(other)
        assert not processes.send(other, signal.SIGKILL)
    assert processes.running(server)
    processes.stop(server)


def test_a_server_in_its_own_session_does_not_receive_ctrl_c(log: Path) -> None:
    server = start(OBEYS, log)
    assert os.getsid(server.pid) == server.pid != os.getsid(0)
    processes.stop(server)


def test_a_server_that_ignores_sigterm_is_killed_after_the_deadline(log: Path) -> None:
    server = start(DEAF, log)
    assert processes.stop(server, patience_s=0.2)
    assert not psutil.pid_exists(server.pid)


def test_a_servers_children_end_with_it(log: Path) -> None:
    server = start(PARENT, log)
    child = int(log.read_text().split()[1])
    assert processes.send(server, signal.SIGKILL)
    assert not psutil.pid_exists(server.pid)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_server_that_dies_at_its_start_is_reported_with_the_end_of_its_log(log: Path) -> None:
    marker = f"--marker={log}"
    command = [sys.executable, "-c", "print('no room on the moon'); raise SystemExit(3)", marker]
    server = processes.spawn(command, marker=marker, log=log, cwd=log.parent, env=os.environ)
    with pytest.raises(ProcessError, match=r"(?s)kafka ended while it started.*no room on the moon"):
        processes.wait_until(lambda: False, server=server, name="kafka", log=log, deadline_s=20)


def test_a_server_that_never_becomes_ready_is_reported_at_the_deadline(log: Path) -> None:
    server = start(OBEYS, log)
    with pytest.raises(ProcessError, match="not ready after 0 s"):
        processes.wait_until(lambda: False, server=server, name="kafka", log=log, deadline_s=0.1)
    processes.stop(server)


def test_a_large_log_is_rotated(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LOG_LIMIT", 10)
    log.write_text("from a long life before")
    processes.stop(start(OBEYS, log))
    assert log.read_text() == "ready\n"
    assert log.with_suffix(".log.1").read_text() == "from a long life before"


def test_a_missing_program_is_a_named_error(log: Path) -> None:
    with pytest.raises(ProcessError, match="cannot start /no/such/program"):
        processes.spawn(["/no/such/program"], marker="/no/such/program", log=log, cwd=log.parent, env={})

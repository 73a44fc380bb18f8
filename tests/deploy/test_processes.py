import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deploy.local import processes
from deploy.local.errors import StackError
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


def test_own_session_keeps_ctrl_c_away(log: Path) -> None:
    server = start(OBEYS, log)
    assert os.getsid(server.pid) == server.pid != os.getsid(0)
    processes.stop(server)


def test_deaf_server_is_killed_after_the_deadline(log: Path) -> None:
    server = start(DEAF, log)
    assert processes.stop(server, patience_s=0.2)
    assert not psutil.pid_exists(server.pid)


def test_children_go_with_their_server(log: Path) -> None:
    server = start(PARENT, log)
    child = int(log.read_text().split()[1])
    assert processes.send(server, signal.SIGKILL)
    assert not psutil.pid_exists(server.pid)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_death_while_starting_shows_the_tail_of_the_log(log: Path) -> None:
    marker = f"--marker={log}"
    command = [sys.executable, "-c", "print('no room on the moon'); raise SystemExit(3)", marker]
    server = processes.spawn(command, marker=marker, log=log, cwd=log.parent, env=os.environ)
    with pytest.raises(StackError, match=r"(?s)kafka ended while it started.*no room on the moon"):
        processes.wait_until(lambda: False, server=server, name="kafka", log=log, deadline_s=20)


def test_server_that_is_never_ready_runs_into_the_deadline(log: Path) -> None:
    server = start(OBEYS, log)
    with pytest.raises(StackError, match="not ready after 0 s"):
        processes.wait_until(lambda: False, server=server, name="kafka", log=log, deadline_s=0.1)
    processes.stop(server)


def test_large_log_is_set_aside(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOG_LIMIT", 10)
    log.write_text("from a long life before")
    processes.stop(start(OBEYS, log))
    assert log.read_text() == "ready\n"
    assert log.with_suffix(".log.1").read_text() == "from a long life before"


def test_missing_program_is_an_error_of_ours(log: Path) -> None:
    with pytest.raises(StackError, match="cannot start /no/such/program"):
        processes.spawn(["/no/such/program"], marker="/no/such/program", log=log, cwd=log.parent, env={})

"""Resident processes alone: who may connect, and when they end. Spark's tasks in them: test_session.py."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

pytestmark = [pytest.mark.unit, pytest.mark.skipif(sys.platform != "linux", reason="Linux only")]

WaitFor = Callable[..., object]
NOBODY = 65_534
RESIDENT = """
import sys
from streaming_job.runtime.workers import residents
residents._secret, residents.IDLE_S = sys.argv[1], float(sys.argv[2])
residents._reside(3)
"""


@contextmanager
def resident(secret: str, idle_s: float) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", RESIDENT, secret, str(idle_s)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def address(secret: str) -> str:
    return f"\0card-fraud-resident-{secret}-3"


def connected(secret: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(address(secret)) == 0


def test_a_resident_without_tasks_ends() -> None:
    with resident(f"idle-{os.getpid()}", 0.1) as process:
        assert process.wait(30) == 0


def test_only_one_process_serves_a_partition(wait_for: WaitFor) -> None:
    secret = f"one-{os.getpid()}"
    with resident(secret, 600) as first, resident(secret, 600) as second:
        wait_for(lambda: first.poll() is not None or second.poll() is not None)
        assert [first.poll(), second.poll()].count(None) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_users_connection_is_closed(wait_for: WaitFor) -> None:
    secret = f"other-{os.getpid()}"
    with resident(secret, 600) as process:
        wait_for(lambda: connected(secret))  # and closed again, which does the resident no harm
        child = os.fork()
        if child == 0:
            os.setuid(NOBODY)
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(10)
                client.connect(address(secret))
                os._exit(client.recv(1) != b"")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert process.poll() is None

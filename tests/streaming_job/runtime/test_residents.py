"""Resident processes without Spark: who may connect, and when they end. With Spark: test_session.py."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from streaming_job.runtime.workers import residents

pytestmark = [pytest.mark.unit, pytest.mark.skipif(sys.platform != "linux", reason="Linux only")]

WaitFor = Callable[..., object]
OTHER_USER = 65_534
PARTITION = 3
RESIDENT = f"""
import sys
from streaming_job.runtime.workers import residents
residents._secret, residents.IDLE_S = sys.argv[1], float(sys.argv[2])
exec(sys.argv[3])
residents._reside({PARTITION})
"""


@contextmanager
def resident(secret: str, idle_s: float, also: str = "") -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", RESIDENT, secret, str(idle_s), also])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def secret(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Secret part of a test's addresses."""
    result = f"{request.node.name}-{os.getpid()}"
    monkeypatch.setattr(residents, "_secret", result)
    return result


def connected() -> bool:
    client = residents._connect(PARTITION)
    if client is not None:
        client.close()
    return client is not None


def test_a_resident_without_tasks_ends(secret: str) -> None:
    with resident(secret, 0.1) as process:
        assert process.wait(30) == 0


def test_a_resident_that_serves_a_group_stays_without_tasks(secret: str) -> None:
    serves = "residents.activities.append(lambda: True)"
    with resident(secret, 0.1, serves) as process, pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)


def test_only_one_process_serves_a_partition(secret: str, wait_for: WaitFor) -> None:
    with resident(secret, 600) as first, resident(secret, 600) as second:
        wait_for(lambda: first.poll() is not None or second.poll() is not None)
        assert [first.poll(), second.poll()].count(None) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_users_connection_is_closed(secret: str, wait_for: WaitFor) -> None:
    with resident(secret, 600) as process:
        wait_for(connected)  # and closed again, which does the resident no harm
        child = os.fork()
        if child == 0:
            os.setuid(OTHER_USER)
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(10)
                client.connect(residents._name(PARTITION))
                os._exit(client.recv(1) != b"")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert process.poll() is None

"""A worker never outlives the daemon that forked it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest

pytestmark = pytest.mark.unit

DAEMON = """
import os, time
from streaming_job.runtime.workers.endings import die_with
os.register_at_fork(after_in_child=die_with(os.getpid()))
worker = os.fork()
if worker:
    print(worker, flush=True)
time.sleep(600)
"""


def test_a_worker_ends_with_its_killed_daemon(wait_for: Callable[..., object]) -> None:
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON], stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    worker = psutil.Process(int(daemon.stdout.readline()))
    try:
        assert worker.is_running()
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.wait()
        wait_for(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
    finally:
        if worker.is_running():
            worker.kill()

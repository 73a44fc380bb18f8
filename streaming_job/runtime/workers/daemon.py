"""Spark's Python worker daemon, which preloads all modules and kernels before it forks workers.

Its workers have a partition's tasks run by one process (`residents`).
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout

from pyspark import daemon

from streaming_job.runtime.workers import PRIVATE, residents
from streaming_job.runtime.workers.preload import preload

PR_SET_PDEATHSIG = 1
"""Option of prctl(2)."""


def main() -> None:
    """Preload, then serve as Spark's daemon."""
    os.umask(PRIVATE)  # executors of a cluster do not inherit it
    with redirect_stdout(sys.stderr):  # Spark reads the daemon's address from stdout
        preload()
    os.register_at_fork(after_in_child=die_with(os.getpid()))
    if sys.platform == "linux":
        residents.install()
    daemon.manager()


def die_with(parent: int) -> Callable[[], None]:
    """Return a function by which a worker asks the kernel to kill it when its daemon ends.

    Spark's daemon sends its workers a signal when it ends. But a daemon that is ended by stdin and SIGTERM at
    the same moment may die before that.
    """
    prctl = ctypes.CDLL(None).prctl

    def in_worker() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return in_worker


if __name__ == "__main__":
    main()

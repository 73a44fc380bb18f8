"""The process that Spark forks the job's Python workers from: Spark's own, with all that they need loaded."""

import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import redirect_stdout
from sys import stderr

from pyspark import daemon

from streaming_job.runtime.workers import PRIVATE
from streaming_job.runtime.workers.preload import preload

PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""


def main() -> None:
    """Preload, then serve as Spark's daemon."""
    os.umask(PRIVATE)  # an executor of a cluster has its own
    with redirect_stdout(stderr):  # Spark reads the daemon's address from stdout
        preload()
    os.register_at_fork(after_in_child=die_with(os.getpid()))
    daemon.manager()


def die_with(parent: int) -> Callable[[], None]:
    """Have the kernel kill a worker whose daemon is gone.

    Spark's daemon sends its workers a signal when it ends; one that is told to end twice at the same moment,
    by its stdin and by SIGTERM, may die before that.
    """
    prctl = ctypes.CDLL(None).prctl

    def in_worker() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return in_worker


if __name__ == "__main__":
    main()

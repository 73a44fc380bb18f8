"""Spark's Python worker daemon, which preloads all modules and kernels before it forks workers.

Its workers pass all tasks of a key group on to one process (`residents`; Linux only).
"""

import os
import sys
from contextlib import redirect_stdout

from pyspark import daemon

from streaming_job.runtime.workers import PRIVATE, endings, residents
from streaming_job.runtime.workers.preload import preload


def main() -> None:
    """Preload, then serve as Spark's daemon."""
    os.umask(PRIVATE)  # executors of a cluster do not inherit the driver's umask
    with redirect_stdout(sys.stderr):  # Spark reads the daemon's address from stdout
        preload()
    if sys.platform == "linux":
        # Spark's daemon signals its workers before it ends; but if its stdin closes and SIGTERM arrives at
        # the same moment, it may die without doing so. In that case Linux ends the workers
        os.register_at_fork(after_in_child=endings.die_with(os.getpid()))
        residents.install()
    daemon.manager()


if __name__ == "__main__":
    main()

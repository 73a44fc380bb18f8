"""The process that Spark forks the job's Python workers from: Spark's own, with all that they need loaded."""

import os
from contextlib import redirect_stdout
from sys import stderr

from pyspark import daemon

from streaming_job.runtime.workers import PRIVATE
from streaming_job.runtime.workers.preload import preload


def main() -> None:
    """Preload, then serve as Spark's daemon."""
    os.umask(PRIVATE)  # an executor of a cluster has its own
    with redirect_stdout(stderr):  # Spark reads the daemon's address from stdout
        preload()
    daemon.manager()


if __name__ == "__main__":
    main()

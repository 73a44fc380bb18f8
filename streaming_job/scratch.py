"""Where a job's process puts what nobody needs after it; what killed ones left is removed by the next.

Spark's block files, its copies of artifacts and the libraries that the JVM unpacks (15 MB) are removed when a
process ends in an orderly way. In the system's directory each kill would leave them for ever.
"""

import os
import shutil
from pathlib import Path

import psutil


def prepare(work_dir: Path) -> Path:
    """An empty directory for this process.

    Args:
        work_dir: of the job; those of processes that are gone are removed from it.
    """
    directory = work_dir / "tmp"
    mine = directory / str(os.getpid())
    for left in directory.glob("*"):
        # one of our own number is a namesake's: in a container every job has the same
        if left == mine or not psutil.pid_exists(int(left.name)):
            shutil.rmtree(left, ignore_errors=True)
    mine.mkdir(parents=True)
    return mine

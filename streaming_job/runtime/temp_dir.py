"""Where a job's process puts what nobody needs after it; what killed ones left is removed by the next.

Spark's block files, its copies of artifacts and the libraries that the JVM unpacks (15 MB) are removed when a
process ends in an orderly way. In the system's directory each kill would leave them for ever.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

LOCK = "lock"
"""Held as long as the directory's process lives, whoever looks and from which container."""


def prepare(work_dir: Path) -> Path:
    """An empty directory for this process.

    Args:
        work_dir: of the job; what processes that are gone left there is removed.
    """
    directory = work_dir / "tmp"
    directory.mkdir(parents=True, exist_ok=True)
    entrance = os.open(directory, os.O_RDONLY)
    try:
        # one at a time: another start would find a directory whose lock its owner has made and not taken yet
        fcntl.flock(entrance, fcntl.LOCK_EX)
        for lock in directory.glob(f"*/{LOCK}"):
            descriptor = os.open(lock, os.O_RDWR)
            if _taken(descriptor):
                shutil.rmtree(lock.parent, ignore_errors=True)
            os.close(descriptor)
        mine = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=directory))
        # never closed: it is the process's
        _taken(os.open(mine / LOCK, os.O_RDWR | os.O_CREAT, 0o600))
    finally:
        os.close(entrance)
    return mine


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

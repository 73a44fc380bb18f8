"""Temporary directories of the job's processes; those of killed processes are removed at the next start.

Spark's block files, its copies of artifacts and the libraries that the JVM unpacks (15 MB) are removed when a
process ends normally. In the system's temporary directory a killed process would leave them for ever.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from streaming_job.environment import SettingsError

LOCK = "lock"
"""File that is locked while the directory's process lives; a lock is visible from other containers, too."""


def prepare(work_dir: Path) -> Path:
    """Create a new directory for this process, and remove those of processes that are gone.

    Raises:
        SettingsError: nothing can be written in the working directory.
    """
    try:
        return _prepare(work_dir / "tmp")
    except OSError as fault:
        raise SettingsError(
            f"FRAUD_WORK_DIR: {work_dir} cannot be used ({fault}); give a local directory with room in which "
            "the job may write"
        ) from fault


def _prepare(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    parent_lock = os.open(directory, os.O_RDONLY)
    try:
        # one start at a time: a concurrent start would remove a directory whose lock file is not locked yet
        fcntl.flock(parent_lock, fcntl.LOCK_EX)
        for lock in directory.glob(f"*/{LOCK}"):
            descriptor = os.open(lock, os.O_RDWR)
            if _try_lock(descriptor):
                shutil.rmtree(lock.parent, ignore_errors=True)
            os.close(descriptor)
        own = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=directory))
        # never closed: the lock is held until the process ends
        _try_lock(os.open(own / LOCK, os.O_RDWR | os.O_CREAT, 0o600))
    finally:
        os.close(parent_lock)
    return own


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

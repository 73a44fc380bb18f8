"""Removal, at a start, of local files that no job of this machine uses any more.

- Working copies of key groups, of other jobs or in the layout of other releases: a process that serves a
  group holds the lock of its copy, and stamps the copy's token when it takes and releases it.
- Copies of models: a load and each epoch of a process that has loaded the model set the directory's time.
- Unfinished and damaged copies of models, which a killed loader leaves behind.
- Compiled kernels of other releases: each import of the kernels sets their directory's time.

All of these can be made again, so a mistake would cost time and no decision. On a cluster this concerns the
driver's machine only.
"""

import fcntl
import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

UNUSED_S = 30 * 86_400.0
"""Time after which files are unused: longer than any epoch, and than most pauses of a job."""
UNFINISHED_S = 86_400.0
"""Time after which a copy of a model cannot still be under way."""


def remove(work_dir: Path, kernels: Path | None, now_s: float) -> list[Path]:
    """Remove unused files, and return the directories that were removed; what cannot be removed stays.

    Args:
        work_dir: work directory of the job; other jobs may use it at the same time.
        kernels: directory of this release's compiled kernels, beside those of other releases; None: none.
        now_s: the time, seconds since 1970-01-01 UTC.
    """
    models, long_ago = work_dir / "models", now_s - UNUSED_S
    unfinished = {*models.glob(".copy-*"), *models.glob(".damaged-*")}
    limits = dict.fromkeys(unfinished, now_s - UNFINISHED_S)
    limits |= dict.fromkeys({*models.glob("*")} - unfinished, long_ago)
    if kernels is not None:
        limits |= dict.fromkeys({*kernels.parent.glob("*")} - {kernels}, long_ago)
    # each is looked at just before its removal, because another job may use it again meanwhile
    removed = [path for path, limit in limits.items() if _is_older(path, limit) and _remove(path)]
    copies = [token.parent for token in (work_dir / "state").glob("*/*/*/token")]
    removed += [copy for copy in copies if _remove_copy(copy, long_ago)]
    for layout in (work_dir / "state").glob("*/*"):
        with suppress(OSError):
            layout.rmdir()  # fails unless it is empty
    for path in removed:
        log.info("removed %s, which no job has used for long", path)
    return removed


def _is_older(path: Path, time_s: float) -> bool:
    try:
        return path.stat().st_mtime < time_s
    except OSError:  # another start has removed it, or it is another user's
        return False


def _remove(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def _remove_copy(directory: Path, time_s: float) -> bool:
    """Remove a group's working copy unless it is newer or locked; return whether it was removed."""
    try:
        lock = os.open(directory / "lock", os.O_RDWR)
    except OSError:  # another start has removed it, or it is another user's
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # the next process that locks the copy notices that its files are gone, and makes new ones
        return _is_older(directory / "token", time_s) and _remove(directory)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)

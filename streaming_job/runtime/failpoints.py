"""Named steps of the job at which a test can kill it.

Failpoints have no effect unless the environment variable `FRAUD_CRASH_POINTS` names a directory. A file there
with a step's name arms that step: the first process that reaches it renames the file to `<step>.<pid>` and
blocks until it is killed. So the job crashes exactly at the step, and passes it after the restart. A file
`released.<pid>` lets the process go on, if something else was to fail while it was at the step.
"""

import os
import time
from enum import StrEnum
from pathlib import Path

VARIABLE = "FRAUD_CRASH_POINTS"
_directory = os.environ.get(VARIABLE)
POLL_S = 0.02
"""Interval at which a blocked process looks whether it is released."""


class Failpoint(StrEnum):
    """The steps of the job, named by what has just happened; the last three are the driver's."""

    TAKEN = "taken"
    """Records have been read from the log, but not decided."""
    DECIDED = "decided"
    """The working copy has changed, but no output is written."""
    BEGUN = "begun"
    """The Kafka transaction is open and empty."""
    SENDING = "sending"
    """Records and offsets are on their way to the brokers."""
    SENT = "sent"
    """The transaction contains records and offsets, and is still open."""
    COMMITTED = "committed"
    """The transaction is committed, but the state's checkpoint is older."""
    CUT = "cut"
    """The epoch's last changes and positions are written, but the task has not taken them."""
    DELTA = "delta"
    """The epoch's delta and positions are in the state store, but Spark has not committed them."""
    EPOCH_ENDED = "epoch_ended"
    """On the driver: the state is committed, but the epoch is not in Spark's commit log."""
    CLAIMED = "claimed"
    """On the driver of a takeover: the predecessor cannot write any more, the seam is not written."""
    SEAM = "seam"
    """On the driver of a takeover: the output is the successor's, and no group of it is open yet."""


OF_EVERY_JOB = tuple(step for step in Failpoint if step not in (Failpoint.CLAIMED, Failpoint.SEAM))
"""The steps of a job that takes over from no other."""


def reach(step: StrEnum) -> None:
    """Block until the process is killed or released if the step is armed; otherwise return at once."""
    # a group's loop has several steps for each mini-batch: os.access takes 2 us, a failed rename 20
    if _directory is not None and os.access(f"{_directory}/{step}", os.F_OK):
        _stop_if_armed(Path(_directory), step)


def _stop_if_armed(directory: Path, step: StrEnum) -> None:
    try:
        (directory / step).rename(directory / f"{step}.{os.getpid()}")
    except FileNotFoundError:
        return
    released = directory / f"released.{os.getpid()}"
    while not released.exists():
        time.sleep(POLL_S)
    released.unlink()

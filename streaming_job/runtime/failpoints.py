"""Named steps of a batch at which a test can kill the job.

Nothing happens unless the environment variable `FRAUD_CRASH_POINTS` names a directory. There a file with a
step's name arms that step: the process that reaches it first renames the file to `<step>.<pid>` and then does
nothing any more, until it is killed. So a crash is placed exactly, and the restart passes the step.
"""

import os
import threading
from enum import StrEnum
from pathlib import Path

VARIABLE = "FRAUD_CRASH_POINTS"
_directory = os.environ.get(VARIABLE)


class Step(StrEnum):
    """What has just happened when the step is reached."""

    DECODED = "decoded"
    """A Python worker of the source stage has decoded records; nothing has left it."""
    APPLIED = "applied"
    """A Python worker of the keyed stage has changed its working copy and put pieces; none is committed."""
    COLLECTED = "collected"
    """State is committed, results are on the driver."""
    BEGUN = "begun"
    """The transaction is open, nothing is in it."""
    SENT = "sent"
    """Records are in the transaction, offsets are not."""
    OFFSETS_ADDED = "offsets_added"
    """Records and offsets are in the transaction, which is open."""
    COMMITTED = "committed"
    """The transaction is committed, Spark's commit log does not know it."""


def reach(step: Step) -> None:
    """Go on, unless the step is armed."""
    if _directory is not None:
        _stop_if_armed(Path(_directory), step)


def _stop_if_armed(directory: Path, step: Step) -> None:
    try:
        (directory / step).rename(directory / f"{step}.{os.getpid()}")
    except FileNotFoundError:
        return
    threading.Event().wait()

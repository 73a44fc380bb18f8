"""Named steps of the job at which a test can kill it.

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
    """What has just happened when the step is reached; all but the last are steps of a Python worker."""

    TAKEN = "taken"
    """Records have been taken from the log, none is decided."""
    DECIDED = "decided"
    """The working copy has changed, nothing has been said."""
    BEGUN = "begun"
    """The Kafka transaction is open, nothing is in it."""
    SENT = "sent"
    """Records are in the transaction, offsets are not."""
    OFFSETS_ADDED = "offsets_added"
    """Records and offsets are in the transaction, which is open."""
    COMMITTED = "committed"
    """The transaction is committed; the state's checkpoint does not know of it."""
    DELTA = "delta"
    """The epoch's delta and positions are in the state store, which Spark has not committed."""
    EPOCH_ENDED = "epoch_ended"
    """On the driver: the state is committed, Spark's commit log does not know of the epoch."""


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

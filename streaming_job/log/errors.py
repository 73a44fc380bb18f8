"""Errors of the input topics."""

import time
from collections.abc import Callable
from typing import TypeVar

from feature_store.errors import FraudError
from streaming_job.runtime.pauses import pause

PATIENCE_S = 120.0
"""Time for which brokers may be unreachable, or a partition unreadable, before the job ends."""
CONFIRM_S = 10.0
"""Time for which a log has to lack records before it counts as damaged: a new leader may report too low an
end until its followers have caught up."""
LOOK_S = 0.5
T = TypeVar("T")


class LogError(FraudError):
    """Records of an input topic are lost, or have their producers' timestamps; it ends the job at once.

    For a producer's timestamp: set the topic to `LogAppendTime`; if such records are intended, as in an
    archive, start with `FRAUD_ARRIVAL=create` until the job has read them. For lost records: keep producers
    from writing to the topic, and restore it or a newer copy of the checkpoint; or, where the log
    has all that is decided, let an empty checkpoint take over.
    """


class LogUnavailableError(FraudError):
    """An input topic cannot be read: the brokers have not answered for two minutes, or a table has grown.

    Check the brokers, start again. The job ends if four attempts fail; the key group is opened again if the
    table has new partitions.
    """


def confirmed(look: Callable[[], T]) -> T:
    """Repeat a look at the log that finds records missing, for CONFIRM_S; return the first good result.

    Raises:
        LogError: as raised by the last look.
    """
    deadline = time.monotonic() + CONFIRM_S
    while True:
        try:
            return look()
        except LogError:
            if time.monotonic() > deadline:
                raise
        pause(LOOK_S)

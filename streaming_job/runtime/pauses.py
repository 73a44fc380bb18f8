"""Pauses between the attempts of a task, which end soon after the job was told to stop.

A task that waits for brokers or for the model registry may wait for minutes. Each of its waits calls `pause`
or `look`, so a stop does not have to wait for them.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from feature_store.errors import FraudError

GRACE_S = 2.0
"""Time that waits still have after a stop request, so that a broker that restarts then does no harm."""
LOOK_S = 0.1
"""Interval at which a pause looks whether the job has to stop."""


class StoppedError(FraudError):
    """A task ended its wait because the job is stopping; the job itself ends with status 0.

    Nothing has to be done.
    """


@dataclass
class _Task:
    must_stop: Callable[[], bool]
    grace_s: float
    told_at: float | None = None
    """Time at which the stop request was first seen."""


_task: ContextVar[_Task | None] = ContextVar("task", default=None)


@contextmanager
def ended_by(must_stop: Callable[[], bool], grace_s: float = GRACE_S) -> Iterator[None]:
    """Let a stop request end the waits in the block.

    Args:
        must_stop: whether the job has been told to stop.
        grace_s: time that the waits still have after the request.
    """
    token = _task.set(_Task(must_stop, grace_s))
    try:
        yield
    finally:
        _task.reset(token)


def look() -> None:
    """Look at the stop request; a wait in short steps calls this in each step.

    Raises:
        StoppedError: the job was told to stop, and the grace is over.
    """
    task = _task.get()
    if task is None or not task.must_stop():
        return
    now = time.monotonic()
    if task.told_at is None:
        task.told_at = now
    if now - task.told_at >= task.grace_s:
        raise StoppedError("the job was told to stop while a task was waiting; the task gives up")


def pause(seconds: float) -> None:
    """Sleep between two attempts.

    Raises:
        StoppedError: the job was told to stop, and the grace is over.
    """
    deadline = time.monotonic() + seconds
    while True:
        look()
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            return
        time.sleep(min(remaining_s, LOOK_S))

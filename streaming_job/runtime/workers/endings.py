"""Processes that the kernel ends when another process ends, even while they run C code. Linux only."""

import ctypes
import fcntl
import os
import select
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
"""Option of prctl(2)."""


def die_with(parent: int) -> Callable[[], None]:
    """Return a function by which a child asks the kernel to kill it when its parent ends."""
    prctl = ctypes.CDLL(None).prctl

    def in_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return in_child


def end_with(descriptor: int) -> None:
    """Have the kernel send this process SIGTERM when the other end of a pipe or socket is closed."""
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    hang_up = select.poll()
    hang_up.register(descriptor, 0)  # reports only that the other end is closed
    if hang_up.poll(0):
        os._exit(1)


def outlive(descriptor: int) -> None:
    """Undo `end_with`."""
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_ASYNC)

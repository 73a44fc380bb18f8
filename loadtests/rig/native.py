"""Operating system threads beside gevent, which replaces Python's threads with greenlets of one thread.

A C library called in a greenlet blocks all other greenlets. The locks and events of `threading` are gevent's,
so a `NativeThread` must not use them: it shares plain attributes and deques, which the GIL protects.
"""

from collections.abc import Callable
from typing import Any

from gevent import monkey

sleep: Callable[[float], None] = monkey.get_original("time", "sleep")
"""The original `time.sleep`, which blocks the calling thread; gevent's would switch greenlets."""
_start_new_thread: Callable[..., Any] = monkey.get_original("_thread", "start_new_thread")


class NativeThread:
    """A function that runs in an operating system thread and has to return once `stopped` is set."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self.stopped = False
        """Set by `stop`; read by the function."""
        self.ended = False
        self.fault: BaseException | None = None
        """The exception that ended the function."""

    def start(self) -> None:
        """Start the thread."""
        _start_new_thread(self._guarded, ())

    def stop(self) -> None:
        """Request the end; returns at once."""
        self.stopped = True

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as fault:  # no caller can catch it: the owner reads `fault`
            self.fault = fault
        finally:
            self.ended = True

"""Real threads beside gevent, which has replaced Python's own with greenlets of one thread.

A C library that is asked within a greenlet stops all others. What runs in a thread of this module uses
neither locks nor events of `threading` (they are gevent's): it shares plain attributes and deques, which
Python's lock keeps whole.
"""

import traceback
from collections.abc import Callable
from typing import Any

from gevent import monkey

sleep: Callable[[float], None] = monkey.get_original("time", "sleep")
"""Of the calling thread, whatever gevent has made of `time.sleep`."""
_start_new_thread: Callable[..., Any] = monkey.get_original("_thread", "start_new_thread")


class NativeThread:
    """A function in a thread of the operating system; ends when the function sees `stopped`."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self.stopped = False
        """Set by `stop`; the function looks at it."""
        self.ended = False
        self.fault: BaseException | None = None
        """What ended the function."""
        self.trace = ""
        """The same for a log."""

    def start(self) -> None:
        """Begin."""
        _start_new_thread(self._guarded, ())

    def stop(self) -> None:
        """Ask for the end; returns at once."""
        self.stopped = True

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as fault:  # there is nobody above: the owner looks at it
            self.fault, self.trace = fault, traceback.format_exc()
        finally:
            self.ended = True

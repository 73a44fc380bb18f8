"""The time limit of every loop that waits for a condition."""

import time
from collections.abc import Callable


class Patience:
    """Time limit and pause of a loop that waits: `while not condition(): patience.wait(error)`.

    What holds already never fails, because the condition is asked first.
    """

    def __init__(
        self,
        limit_s: float,
        poll_s: float,
        *,
        pause: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to wait.

        Args:
            limit_s: time after which the wait fails, seconds; it begins anew with each progress.
            pause: waits that long; raises an error if the loop was asked to stop.
        """
        self._limit_s, self._poll_s, self._pause, self._clock = limit_s, poll_s, pause, clock
        self._progress: object = None
        self._since = clock()

    def wait(self, error: Callable[[], Exception], progress: object = None) -> None:
        """Pause until the next look.

        Args:
            error: makes the error of a wait that fails: what did not happen, and where to look.
            progress: any value; a change of it is progress.

        Raises:
            Exception: that of `error`, after `limit_s` without progress.
        """
        now = self._clock()
        if progress != self._progress:
            self._progress, self._since = progress, now
        if now - self._since > self._limit_s:
            raise error()
        self._pause(self._poll_s)

"""The log of a game day: lines with seconds since the symptom was provoked."""

import threading
import time
from collections.abc import Callable


class Journal:
    """Lines in the order in which things happened; several threads may write.

    Args:
        say: gets each line at once.
        clock: seconds, monotonic.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._lock = threading.Lock()
        self._start = clock()
        self.lines: list[str] = []
        """So far."""

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._start

    def begin(self) -> None:
        """Forget the lines, and count seconds from now."""
        with self._lock:
            self._start = self._clock()
            self.lines = []

    def tell(self, what: str, text: str) -> None:
        """Add a line.

        Args:
            what: a word that says what kind of thing happened.
            text: the thing; white space is made one space.
        """
        with self._lock:
            line = f"{self.seconds:7.1f} s  {what:<8} {' '.join(text.split())}"
            self.lines.append(line)
        self._say(line)

"""The log of a game day: lines with the seconds since the game day began."""

import threading
import time
from collections.abc import Callable


class Journal:
    """Lines in the order of events. Thread-safe."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._lock = threading.Lock()
        self._start = clock()
        self.lines: list[str] = []

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    def begin(self) -> None:
        """Clear the lines and restart the clock."""
        with self._lock:
            self._start = self._clock()
            self.lines = []

    def add(self, kind: str, text: str) -> None:
        """Add a line.

        Args:
            kind: kind of event, one word.
            text: description; runs of white space become one space.
        """
        with self._lock:
            line = f"{self.seconds:7.1f} s  {kind:<8} {' '.join(text.split())}"
            self.lines.append(line)
        self._say(line)

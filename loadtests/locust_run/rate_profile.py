"""The rate of a load test over time, linear within each period, and the times at which events are due."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadtests.locust_run.errors import LoadTestError

I64 = npt.NDArray[np.int64]
SHAPES = ("steady", "ramp", "spike", "soak", "replay")
FIRST_SHARE = 0.1
"""First rate of a warm-up, ramp or soak, as a share of the full rate."""
SPIKE_FROM, SPIKE_TO = 0.4, 0.6
"""Begin and end of a spike, as shares of the time."""
SOAK_RAMP = 0.05
"""Share of a soak's time in which the rate rises."""


@dataclass(frozen=True)
class Piece:
    """A period in which the rate changes linearly."""

    seconds: float
    first: float
    """Events per second at the start."""
    last: float
    """Events per second at the end."""

    @property
    def events(self) -> float:
        """Number of events due within the period."""
        return self.seconds * (self.first + self.last) / 2


class RateProfile:
    """Consecutive periods of linear rate; event i is due when the integral of the rate is i + 1/2."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        """Join periods.

        Raises:
            LoadTestError: no period has a positive length, or a rate is not positive.
        """
        self.pieces = [piece for piece in pieces if piece.seconds > 0]
        if not self.pieces or any(min(piece.first, piece.last) <= 0 for piece in self.pieces):
            raise LoadTestError("a load test needs a rate and a length above 0; give --rate and --for")
        self._seconds = np.cumsum([0.0, *(piece.seconds for piece in self.pieces)])
        self._events = np.cumsum([0.0, *(piece.events for piece in self.pieces)])

    @property
    def seconds(self) -> float:
        """Length, seconds."""
        return float(self._seconds[-1])

    @property
    def events(self) -> int:
        """Number of all events."""
        return int(np.floor(self._events[-1] + 0.5))

    @property
    def peak(self) -> float:
        """Highest rate, events per second."""
        return max(max(piece.first, piece.last) for piece in self.pieces)

    def rate_at(self, second: float) -> float:
        """Return the events per second at a time; 0 before the start and after the end."""
        if not 0 <= second <= self.seconds:
            return 0.0
        at = min(int(np.searchsorted(self._seconds, second, side="right")) - 1, len(self.pieces) - 1)
        piece = self.pieces[at]
        return piece.first + (piece.last - piece.first) * (second - float(self._seconds[at])) / piece.seconds

    def due_by(self, second: float) -> int:
        """Return the number of events due by a time, seconds from the start."""
        if second <= 0:
            return 0
        if second >= self.seconds:
            return self.events
        at = int(np.searchsorted(self._seconds, second, side="right")) - 1
        piece, into = self.pieces[at], second - self._seconds[at]
        slope = (piece.last - piece.first) / piece.seconds
        return int(np.floor(self._events[at] + piece.first * into + slope * into**2 / 2 + 0.5))

    def due_us(self, numbers: I64) -> I64:
        """Return when events are due.

        Args:
            numbers: numbers of the events, 0 .. events - 1, shape (n,).

        Returns:
            Microseconds from the start, shape (n,), ascending with the number.
        """
        count = np.minimum(numbers + 0.5, self._events[-1])
        at = np.clip(np.searchsorted(self._events, count, side="right") - 1, 0, len(self.pieces) - 1)
        into = count - self._events[at]
        first = np.array([piece.first for piece in self.pieces])[at]
        slope = np.array([(piece.last - piece.first) / piece.seconds for piece in self.pieces])[at]
        # this form of the quadratic's root avoids cancellation and division by a slope of 0
        under = np.maximum(first**2 + 2 * slope * into, 0.0)
        seconds = self._seconds[at] + 2 * into / (first + np.sqrt(under))
        due: I64 = np.round(seconds * 1e6).astype(np.int64)
        return due


def profile(
    shape: str, rate: float, for_s: float, *, warm_up_s: float = 0.0, factor: float = 5.0
) -> RateProfile:
    """Build the profile of a warm-up, from a tenth of the rate to the shape's first rate, and of the shape.

    Args:
        shape: steady; ramp (a tenth of the rate to the rate); spike (`factor` times the rate for a fifth of
            the time); soak (a slow rise, then steady).
        rate: events per second.
        for_s: measured time, seconds.
        factor: rate of a spike as a multiple of the rate.

    Raises:
        LoadTestError: the shape is unknown or replay, which has no profile; or a rate is not positive, or
            neither `for_s` nor `warm_up_s` is.
    """
    low = rate * FIRST_SHARE
    if shape == "steady":
        pieces = [Piece(for_s, rate, rate)]
    elif shape == "ramp":
        pieces = [Piece(for_s, low, rate)]
    elif shape == "spike":
        pieces = [
            Piece(for_s * SPIKE_FROM, rate, rate),
            Piece(for_s * (SPIKE_TO - SPIKE_FROM), rate * factor, rate * factor),
            Piece(for_s * (1 - SPIKE_TO), rate, rate),
        ]
    elif shape == "soak":
        pieces = [Piece(for_s * SOAK_RAMP, low, rate), Piece(for_s * (1 - SOAK_RAMP), rate, rate)]
    else:
        profiled = ", ".join(name for name in SHAPES if name != "replay")
        raise LoadTestError(f"shape {shape!r} has no rate profile; give one of {profiled}")
    first = pieces[0].first
    return RateProfile([Piece(warm_up_s, min(low, first), first), *pieces])

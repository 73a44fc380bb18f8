"""Faults added to the simulated stream: late, repeated, wrongly timed and malformed records."""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from feature_store.errors import FraudError
from loadtests.simulator.malformed import KINDS

_MINUTE = 60_000
_DAY = 86_400_000

CLEAN, OUT_OF_ORDER, LATE, TOO_LATE, FUTURE, DUPLICATE, MALFORMED = range(7)
NAMES = np.array(
    ["", "out_of_order", "late", "too_late", "future_event_time", "duplicate"]
    + [f"malformed:{k}" for k in KINDS]
)
"""Names by code; codes from `MALFORMED` on are in the order of `malformed.KINDS`."""
_KIND_SHARES = np.array([share for share, _, _ in KINDS.values()])
_BEYOND = 0.2
"""Share of the late records that are older than the allowed seven days."""


@dataclass(frozen=True)
class Disturbances:
    """Shares of disturbed transactions, each 0 to 1, in sum at most 1."""

    late: float = 0.005
    """Event time 1 minute to 6 days back; for one in five of these records, 8 to 30 days."""
    out_of_order: float = 0.01
    """Event time 0.1 to 30 s back."""
    future: float = 0.0005
    """Event time 10 minutes to 12 hours ahead, as from a wrong clock."""
    malformed: float = 0.002
    """Records spoiled in one of the ways of `malformed.KINDS`; all but `extra_fields` break the contract."""
    duplicated: float = 0.005
    """Sent again, at once or up to a minute later; the copies are in addition to the rate."""

    def __post_init__(self) -> None:
        shares = [getattr(self, f.name) for f in fields(self)]
        if min(shares) < 0 or sum(shares) > 1:
            raise FraudError(
                f"shares of disturbances {shares} are out of range; give 0 or more, in sum at most 1"
            )

    @classmethod
    def none(cls) -> "Disturbances":
        """Return shares of 0, for example for training history."""
        return cls(0, 0, 0, 0, 0)


def choose(rng: np.random.Generator, shares: Disturbances, n: int) -> npt.NDArray[np.int8]:
    """Draw the disturbance of each of n transactions, as codes of `NAMES` (never DUPLICATE)."""
    u = rng.random(n)
    edges = np.cumsum(
        [
            shares.out_of_order,
            shares.late * (1 - _BEYOND),
            shares.late * _BEYOND,
            shares.future,
            *(shares.malformed * _KIND_SHARES / _KIND_SHARES.sum()),
        ]
    )
    codes = np.array(
        [OUT_OF_ORDER, LATE, TOO_LATE, FUTURE, *range(MALFORMED, len(NAMES)), CLEAN], dtype=np.int8
    )
    return codes[np.searchsorted(edges, u, side="right")]


def shift(rng: np.random.Generator, codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """Return by how many ms the disturbance of each record shifts its event time; negative: back."""
    moved = np.zeros(len(codes), dtype=np.int64)
    ranges = {
        OUT_OF_ORDER: (-1, 100, 30_000),
        LATE: (-1, _MINUTE, 6 * _DAY),
        TOO_LATE: (-1, 8 * _DAY, 30 * _DAY),
        FUTURE: (1, 10 * _MINUTE, 720 * _MINUTE),
    }
    for code, (sign, least, most) in ranges.items():
        rows = np.flatnonzero(codes == code)
        # log-uniform: one to ten minutes are as likely as ten to a hundred
        spread = np.exp(rng.uniform(np.log(least), np.log(most), len(rows)))
        moved[rows] = sign * spread.astype(np.int64)
    return moved


def repeats(
    rng: np.random.Generator, shares: Disturbances, codes: npt.NDArray[np.int8]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw the rows that are sent again, and their delays (ms); malformed ones never are."""
    again = np.flatnonzero((rng.random(len(codes)) < shares.duplicated) & (codes < MALFORMED))
    at_once = rng.random(len(again)) < 0.3
    delay = np.where(at_once, 0, np.exp(rng.uniform(np.log(10), np.log(60_000), len(again))))
    return again, delay.astype(np.int64)

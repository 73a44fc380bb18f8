"""What a log had lost when a job first read its state from it. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

FIELD = "losses"
"""Name in progress records; group 0's have it, if anything was lost."""


@dataclass(frozen=True)
class Losses:
    """Arrivals, ms, before which decisions may lack something; None: nothing was lost."""

    profiles_before: int | None = None
    """Compaction may have removed the profile that was in force."""
    windows_before: int | None = None
    """Retention had deleted transactions to which the windows of features reach back."""

    def to_json(self) -> dict[str, int]:
        """Return the fields that are not None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


NOTHING_LOST = Losses()


def losses_in(record: Mapping[str, Any]) -> Losses:
    """Return the losses that a progress record of group 0, or `job.json`, names.

    Raises:
        TypeError: they are invalid.
    """
    return Losses(**record.get(FIELD) or {})

"""What a game day is: data, and two functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected

Deed = Callable[[Scene], None]


PREFIX = "fraud-gameday-"
"""Of the temporary directory of a run."""


@dataclass(frozen=True)
class Gameday:
    """One symptom: how it is provoked, what must be seen, and what mends it."""

    name: str
    entries: tuple[str, ...]
    """Of the runbook: whose remedy is applied, then others that show, too."""
    symptom: str
    """In a few words."""
    provoked_by: str
    """What is done to the system, one sentence."""
    mended_by: str
    """The remedy, one sentence."""
    expected: Expected
    provoke: Deed
    mend: Deed
    patience_s: float = 240.0
    """In which everything expected is seen."""
    left: Mapping[str, int] = field(default_factory=dict)
    """What the audit finds afterwards, because the game day has put it there; 0 of everything else."""
    note: str = ""
    """What cannot be seen in so short a time, or why something is not seen at all."""

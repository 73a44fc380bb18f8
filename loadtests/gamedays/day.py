"""The definition of a game day: data and two functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected

Action = Callable[[Scene], object]


@dataclass(frozen=True)
class Gameday:
    """One symptom: how it is provoked, what must be seen, and what mends it."""

    name: str
    entries: tuple[str, ...]
    """Runbook entries: first the entry whose remedy is applied, then entries whose symptoms also show."""
    symptom: str
    provoked_by: str
    """How the symptom is provoked, one sentence."""
    mended_by: str
    """The remedy, one sentence."""
    expected: Expected
    provoke: Action
    mend: Action
    patience_s: float = 240.0
    """Time limit for seeing everything expected, seconds."""
    findings: Mapping[str, int] = field(default_factory=dict)
    """Findings of the audit that the game day itself causes, by kind; other kinds must have none."""
    note: str = ""
    """What a short run cannot show, or why a sign is missing."""
    problems: int = 0
    """Number of differences between outputs and progress records that the symptom leaves behind."""

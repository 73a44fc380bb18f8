"""What one guard says."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """The three answers; there is no fourth, so silence is never taken for consent."""

    PASS = "pass"
    """The data prove that the limit is kept."""
    BREACH = "breach"
    """The data prove that it is not."""
    INSUFFICIENT = "insufficient"
    """Neither: wait. Nothing advances on it."""


@dataclass(frozen=True)
class Finding:
    """What one guard says of a challenger."""

    guard: str
    """Its name."""
    outcome: Outcome
    has_data: bool
    """Whether it has seen anything at all; a canary may not begin before each guard has."""
    detail: str
    """For a person: the numbers and the limit."""
    evidence: Mapping[str, Any]
    """JSON: the counts used and the numbers made of them, all finite; null where there is none."""

    def to_json(self) -> dict[str, Any]:
        """Of Python's own types."""
        return {
            "guard": self.guard,
            "verdict": self.outcome.value,
            "has_data": self.has_data,
            "detail": self.detail,
            "evidence": dict(self.evidence),
        }

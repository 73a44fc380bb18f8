"""Findings of an audit: counts in total and by topic, and the texts of the first findings."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

EXAMPLES = 20
"""Maximum number of findings whose texts are kept."""
MISSING, DUPLICATED, UNEXPECTED, DIFFERENT = KINDS = "missing", "duplicated", "unexpected", "different"


@dataclass
class Findings:
    """Counts of differences, and the texts of the first findings."""

    missing: int = 0
    """Expected records that are missing."""
    duplicated: int = 0
    """Records that are on the topic more than once."""
    unexpected: int = 0
    """Records that were not expected."""
    different: int = 0
    """Records of the right source with other content; each also counts as missing and unexpected."""
    examples: list[str] = field(default_factory=list)
    topics: dict[str, Counter[str]] = field(default_factory=dict)
    """Counts by output topic and kind of finding."""
    on_finding: Callable[[str, str, str], None] | None = None
    """Called with topic, kind and text of every finding."""

    def add(self, topic: str, kind: str, text: str) -> None:
        """Count a finding on a topic, and keep its text if it is one of the first."""
        for name in (MISSING, UNEXPECTED, DIFFERENT) if kind == DIFFERENT else (kind,):
            setattr(self, name, getattr(self, name) + 1)
            self.topics.setdefault(topic, Counter())[name] += 1
        if self.on_finding is not None:
            self.on_finding(topic, kind, text)
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)

    def of(self, topic: str) -> dict[str, int]:
        """Return the counts of one topic."""
        counts = self.topics.get(topic, Counter())
        return {name: counts[name] for name in KINDS}

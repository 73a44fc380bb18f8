"""What an audit finds wrong: counts, by topic too, and the first findings in words."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

EXAMPLES = 20
"""Findings that are told in words."""
MISSING, DUPLICATED, UNEXPECTED, DIFFERENT = KINDS = "missing", "duplicated", "unexpected", "different"


@dataclass
class Findings:
    """What does not agree, counted, and told in words for the first ones."""

    missing: int = 0
    """Expected and not found."""
    duplicated: int = 0
    """Found more than once."""
    unexpected: int = 0
    """Found and not expected."""
    different: int = 0
    """Found in the right place with other content: each is one missing and one unexpected as well."""
    examples: list[str] = field(default_factory=list)
    topics: dict[str, Counter[str]] = field(default_factory=dict)
    """The same counts by output topic."""
    tell: Callable[[str, str, str], None] | None = None
    """Gets topic, kind and words of every finding."""

    def add(self, topic: str, kind: str, text: str) -> None:
        """Count a finding on a topic, and remember it in words if there are not too many yet."""
        for name in (MISSING, UNEXPECTED, DIFFERENT) if kind == DIFFERENT else (kind,):
            setattr(self, name, getattr(self, name) + 1)
            self.topics.setdefault(topic, Counter())[name] += 1
        if self.tell is not None:
            self.tell(topic, kind, text)
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)

    def of(self, topic: str) -> dict[str, int]:
        """The counts of one topic."""
        counts = self.topics.get(topic, Counter())
        return {name: counts[name] for name in KINDS}

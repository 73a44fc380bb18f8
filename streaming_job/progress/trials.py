"""The paired counts of a rollout: alerts of challengers and champion on the same transactions. Pure.

A unit (a transaction, a card-hour or a card) with an alert is of one of three kinds: both models alerted,
only the champion, or only the challenger.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from streaming_job.progress.histogram import Histogram

PAIRED = ("both", "only_champion", "only_challenger")
"""The three kinds of units."""
NUMBERS = ("transactions", "decided", "failures", *PAIRED, "rows")
"""Plain counts of a challenger; those named in PAIRED count transactions by kind."""
MAX_TRIALS = 3
"""Maximum number of rollouts whose trials the totals contain: the newest, open or finished."""


@dataclass
class ChallengerCounts:
    """The counts of one challenger beside the champion."""

    numbers: Counter[str] = field(default_factory=Counter)
    """Counts by name in NUMBERS. `transactions` and `rows` have the same value: the number of transactions
    given to the challenger; `failures` counts those that got no score, `decided` those that it decided as
    canary."""
    card_hours: Counter[str] = field(default_factory=Counter)
    """Card-hours by PAIRED; when a card-hour becomes `both`, the count of its earlier kind falls by one."""
    cards: Counter[str] = field(default_factory=Counter)
    """Cards by PAIRED; when a card becomes `both`, the count of its earlier kind falls by one."""
    time_ms: float = 0.0
    """Time that the challenger took to score its rows."""
    champion_time_ms: float = 0.0
    """Time that the champion took to score the same rows."""
    scores: Histogram = field(default_factory=Histogram)
    champion_scores: Histogram = field(default_factory=Histogram)
    """Scores of the champion for the same transactions."""

    def add(self, other: "ChallengerCounts") -> None:
        """Add the counts of more transactions."""
        self.numbers.update(other.numbers)
        self.card_hours.update(other.card_hours)
        self.cards.update(other.cards)
        self.time_ms += other.time_ms
        self.champion_time_ms += other.champion_time_ms
        for histogram, more in (
            (self.scores, other.scores), (self.champion_scores, other.champion_scores)
        ):  # fmt: skip
            histogram.add(more.bounds, more.counts, more.total)

    def to_json(self) -> dict[str, Any]:
        """Return the challenger's counts for the progress record, for orjson with OPT_SERIALIZE_NUMPY."""
        return {
            **{name: self.numbers.get(name, 0) for name in NUMBERS},
            "card_hours": {name: self.card_hours.get(name, 0) for name in PAIRED},
            "cards": {name: self.cards.get(name, 0) for name in PAIRED},
            "time_ms": round(self.time_ms, 3),
            "champion_time_ms": round(self.champion_time_ms, 3),
            "scores": self.scores.to_json(),
            "champion_scores": self.champion_scores.to_json(),
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "ChallengerCounts":
        """Parse what `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the counts are invalid.
        """
        return ChallengerCounts(
            Counter({name: int(record[name]) for name in NUMBERS}),
            Counter({name: int(record["card_hours"][name]) for name in PAIRED}),
            Counter({name: int(record["cards"][name]) for name in PAIRED}),
            float(record["time_ms"]),
            float(record["champion_time_ms"]),
            Histogram.from_json(record["scores"]),
            Histogram.from_json(record["champion_scores"]),
        )


@dataclass
class TrialCounts:
    """The counts of one rollout."""

    seq: int = 0
    """Sequence number of the rollout's newest event that was in force for a counted transaction."""
    challengers: dict[str, ChallengerCounts] = field(default_factory=dict)
    """Counts by the challenger's name."""

    def of(self, challenger: str) -> ChallengerCounts:
        """Return the counts of a challenger; the caller may add to them."""
        return self.challengers.setdefault(challenger, ChallengerCounts())

    def add(self, other: "TrialCounts") -> None:
        """Add the counts of more transactions."""
        self.seq = max(self.seq, other.seq)
        for name, counts in other.challengers.items():
            self.of(name).add(counts)

    def to_json(self) -> dict[str, Any]:
        """Return the counts of this rollout as they stand in the field `trials` of the progress record."""
        return {"seq": self.seq, "challengers": {name: c.to_json() for name, c in self.challengers.items()}}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "TrialCounts":
        """Parse what `to_json` returned; raises the errors of `ChallengerCounts.from_json`."""
        challengers = record["challengers"].items()
        return TrialCounts(
            int(record["seq"]), {name: ChallengerCounts.from_json(counts) for name, counts in challengers}
        )


@dataclass
class Trials:
    """The counts of rollouts, in the order in which they were first counted."""

    by_rollout: dict[str, TrialCounts] = field(default_factory=dict)
    _encoded: dict[str, orjson.Fragment] = field(default_factory=dict)
    """JSON of rollouts whose counts have not changed since it was encoded; so a finished rollout is encoded
    only once."""

    def __bool__(self) -> bool:
        """Whether any rollout was counted."""
        return bool(self.by_rollout)

    def of(self, rollout_id: str) -> TrialCounts:
        """Return the counts of a rollout; the caller may add to them until the next `to_json`."""
        self._encoded.pop(rollout_id, None)
        return self.by_rollout.setdefault(rollout_id, TrialCounts())

    def add(self, other: "Trials") -> None:
        """Add the counts of more transactions."""
        for rollout_id, counts in other.by_rollout.items():
            self.of(rollout_id).add(counts)

    def keep_newest(self) -> None:
        """Drop all but the newest MAX_TRIALS rollouts."""
        for rollout_id in list(self.by_rollout)[:-MAX_TRIALS]:
            del self.by_rollout[rollout_id]
            self._encoded.pop(rollout_id, None)

    def to_json(self) -> dict[str, orjson.Fragment]:
        """Return the field `trials` of the progress record, for orjson."""
        for rollout_id, counts in self.by_rollout.items():
            if rollout_id not in self._encoded:
                encoded = orjson.dumps(counts.to_json(), option=orjson.OPT_SERIALIZE_NUMPY)
                self._encoded[rollout_id] = orjson.Fragment(encoded)
        return {rollout_id: self._encoded[rollout_id] for rollout_id in self.by_rollout}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Trials":
        """Parse what `to_json` returned, after it was serialised as JSON.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the counts are invalid.
        """
        return Trials({rollout_id: TrialCounts.from_json(counts) for rollout_id, counts in record.items()})

"""What challengers and champion made of the same transactions: the counts of a rollout, paired. Pure.

A unit (a transaction, a card in a clock hour, a card) with an alert is one of three: both alerted, only the
champion, only the challenger.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from streaming_job.progress.histogram import Histogram

PAIRED = ("both", "only_champion", "only_challenger")
"""What a unit can be."""
NUMBERS = ("transactions", "decided", "failures", *PAIRED, "rows")
"""Plain counts of a challenger; of PAIRED those of transactions."""
KEPT = 3
"""Trials in totals: the open one, if there is one, and the last that are finished."""


@dataclass
class ChallengerCounts:
    """One challenger beside the champion."""

    numbers: Counter[str] = field(default_factory=Counter)
    """By NUMBERS: `failures` of the `rows` have no score, `decided` is what it decided, for its members."""
    card_hours: Counter[str] = field(default_factory=Counter)
    """Cards by clock hour of arrival, by PAIRED; a unit that becomes `both` is taken from where it was."""
    cards: Counter[str] = field(default_factory=Counter)
    """The same of cards."""
    time_ms: float = 0.0
    """Time in which it scored its rows."""
    champion_time_ms: float = 0.0
    """Time in which the champion scored the same rows."""
    scores: Histogram = field(default_factory=Histogram)
    champion_scores: Histogram = field(default_factory=Histogram)
    """Of the champion, about the same transactions."""

    def add(self, other: "ChallengerCounts") -> None:
        """Take in those of more transactions."""
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
        """COUNTS of the contract, for orjson with OPT_SERIALIZE_NUMPY."""
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
        """Inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: these are no such counts.
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
    """One rollout."""

    seq: int = 0
    """Of the newest event of the rollout under which something was counted."""
    challengers: dict[str, ChallengerCounts] = field(default_factory=dict)
    """By name."""

    def of(self, challenger: str) -> ChallengerCounts:
        """Counts of a challenger, to be added to."""
        return self.challengers.setdefault(challenger, ChallengerCounts())

    def add(self, other: "TrialCounts") -> None:
        """Take in those of more transactions."""
        self.seq = max(self.seq, other.seq)
        for name, counts in other.challengers.items():
            self.of(name).add(counts)

    def to_json(self) -> dict[str, Any]:
        """One rollout of the contract's `trials`."""
        return {"seq": self.seq, "challengers": {name: c.to_json() for name, c in self.challengers.items()}}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "TrialCounts":
        """Inverse of `to_json`; raises what `ChallengerCounts.from_json` raises."""
        challengers = record["challengers"].items()
        return TrialCounts(
            int(record["seq"]), {name: ChallengerCounts.from_json(counts) for name, counts in challengers}
        )


@dataclass
class Trials:
    """Rollouts, in the order in which they were first counted."""

    by_rollout: dict[str, TrialCounts] = field(default_factory=dict)
    _encoded: dict[str, orjson.Fragment] = field(default_factory=dict)
    """Of those that have not changed since they were encoded: a finished one costs nothing any more."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.by_rollout)

    def of(self, rollout_id: str) -> TrialCounts:
        """Counts of a rollout, to be added to at once."""
        self._encoded.pop(rollout_id, None)
        return self.by_rollout.setdefault(rollout_id, TrialCounts())

    def add(self, other: "Trials", most: int = KEPT) -> None:
        """Take in those of more transactions, and keep the newest `most` rollouts."""
        for rollout_id, counts in other.by_rollout.items():
            self.of(rollout_id).add(counts)
        for rollout_id in list(self.by_rollout)[:-most]:
            del self.by_rollout[rollout_id]
            self._encoded.pop(rollout_id, None)

    def to_json(self) -> dict[str, orjson.Fragment]:
        """The contract's `trials`, for orjson."""
        for rollout_id, counts in self.by_rollout.items():
            if rollout_id not in self._encoded:
                told = orjson.dumps(counts.to_json(), option=orjson.OPT_SERIALIZE_NUMPY)
                self._encoded[rollout_id] = orjson.Fragment(told)
        return {rollout_id: self._encoded[rollout_id] for rollout_id in self.by_rollout}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Trials":
        """Inverse of `to_json`, after a trip through JSON.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: these are no such counts.
        """
        return Trials({rollout_id: TrialCounts.from_json(counts) for rollout_id, counts in record.items()})

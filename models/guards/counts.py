"""Paired counts of a challenger and the champion, as in the field `trials` of a progress record. Pure.

Counts by label are no part of progress records. The sidecar and the command line add them (service/precision)
if a guard needs them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from models.errors import GuardError
from models.score_histogram import EMPTY, ScoreHistogram


@dataclass(frozen=True)
class Pairs:
    """Units (transactions, card-hours or cards) in which at least one of the two models alerted."""

    both: int = 0
    only_champion: int = 0
    only_challenger: int = 0

    @property
    def total(self) -> int:
        """Units in which at least one model alerted."""
        return self.both + self.only_champion + self.only_challenger

    @property
    def one_sided(self) -> int:
        """Units in which exactly one model alerted."""
        return self.only_champion + self.only_challenger


@dataclass(frozen=True)
class Labelled:
    """Numbers of a model's labelled cards, by label.

    The label of a card is that of its first transaction that has a label and on which the model alerted.
    """

    fraud: int = 0
    genuine: int = 0

    @property
    def total(self) -> int:
        """Cards with a label."""
        return self.fraud + self.genuine

    def to_json(self) -> dict[str, int]:
        """Return the counts in built-in types."""
        return asdict(self)


@dataclass(frozen=True)
class PairedCounts:
    """Results of champion and challenger on the same transactions.

    A card-hour is a card and a clock hour of arrival. It counts for a model if the model alerted on the card
    in that hour.
    """

    transactions: int = 0
    """Accepted transactions given to both models."""
    decided: int = 0
    """Of all `transactions`, those that the challenger decided as a canary."""
    failures: int = 0
    """Of all `transactions`, those for which the challenger returned no score."""
    verdicts: Pairs = Pairs()
    """Transactions in which the models alerted."""
    card_hours: Pairs = Pairs()
    cards: Pairs = Pairs()
    rows: int = 0
    """Rows to which `time_ms` and `champion_time_ms` refer."""
    time_ms: float = 0.0
    """Time in which the challenger scored these rows."""
    champion_time_ms: float = 0.0
    """Time in which the champion scored these rows."""
    scores: ScoreHistogram = EMPTY
    """Scores of the challenger."""
    champion_scores: ScoreHistogram = EMPTY
    """Scores of the champion."""
    labelled: Labelled | None = None
    """Cards on which the challenger alerted, by label; None if labels have not been counted."""
    champion_labelled: Labelled | None = None
    """Cards on which the champion alerted, by label; None as above."""

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "PairedCounts":
        """Read the counts of one challenger from a progress record's `trials` or from a verdict's evidence.

        Unknown fields are ignored. Only evidence has counts by label.

        Raises:
            GuardError: a field is missing or invalid.
        """
        try:
            return PairedCounts(
                transactions=_count(record, "transactions"),
                decided=_count(record, "decided"),
                failures=_count(record, "failures"),
                verdicts=_pairs(record),
                card_hours=_pairs(record["card_hours"]),
                cards=_pairs(record["cards"]),
                rows=_count(record, "rows"),
                time_ms=_time(record, "time_ms"),
                champion_time_ms=_time(record, "champion_time_ms"),
                scores=ScoreHistogram.from_json(record["scores"]),
                champion_scores=ScoreHistogram.from_json(record["champion_scores"]),
                labelled=_labelled(record, "labelled"),
                champion_labelled=_labelled(record, "champion_labelled"),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise GuardError(
                f"these are no counts of a trial: {why}; read them from job-progress of this release"
            ) from error

    @staticmethod
    def of_groups(groups: Iterable["PairedCounts"]) -> "PairedCounts":
        """Sum the counts of key groups, which have no counts by label; any order gives bit-identical sums."""
        parts = list(groups)
        return PairedCounts(
            transactions=sum(part.transactions for part in parts),
            decided=sum(part.decided for part in parts),
            failures=sum(part.failures for part in parts),
            verdicts=_sum(part.verdicts for part in parts),
            card_hours=_sum(part.card_hours for part in parts),
            cards=_sum(part.cards for part in parts),
            rows=sum(part.rows for part in parts),
            time_ms=math.fsum(part.time_ms for part in parts),
            champion_time_ms=math.fsum(part.champion_time_ms for part in parts),
            scores=ScoreHistogram.summed(part.scores for part in parts),
            champion_scores=ScoreHistogram.summed(part.champion_scores for part in parts),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object that `from_json` reads; counts by label only if labels have been counted."""
        by_label = {"labelled": self.labelled, "champion_labelled": self.champion_labelled}
        return {
            "transactions": self.transactions,
            "decided": self.decided,
            "failures": self.failures,
            **asdict(self.verdicts),
            "card_hours": asdict(self.card_hours),
            "cards": asdict(self.cards),
            "rows": self.rows,
            "time_ms": self.time_ms,
            "champion_time_ms": self.champion_time_ms,
            "scores": self.scores.to_json(),
            "champion_scores": self.champion_scores.to_json(),
            # absent, not null: evidence written without these fields must equal what is recomputed from it
            **{name: cards.to_json() for name, cards in by_label.items() if cards is not None},
        }


def _pairs(record: Mapping[str, Any]) -> Pairs:
    return Pairs(*(_count(record, name) for name in ("both", "only_champion", "only_challenger")))


def _labelled(record: Mapping[str, Any], name: str) -> Labelled | None:
    if name not in record:
        return None
    return Labelled(*(_count(record[name], outcome) for outcome in ("fraud", "genuine")))


def _sum(pairs: Iterable[Pairs]) -> Pairs:
    parts = list(pairs)
    return Pairs(
        sum(part.both for part in parts),
        sum(part.only_champion for part in parts),
        sum(part.only_challenger for part in parts),
    )


def _count(record: Mapping[str, Any], name: str) -> int:
    number = record[name]
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(f"{name} is {number!r}, no count")
    return number


def _time(record: Mapping[str, Any], name: str) -> float:
    number = float(record[name])
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} is {number!r}, no time")
    return number

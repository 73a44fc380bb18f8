"""The six guards: parameters, and the test of the counts.

Each guard has `judge(counts, limits) -> Finding`. `alert_rate`, `disagreement`, `failures` and `precision`
are sequential tests by betting, which may be repeated at any time at no higher risk of a false proof.
`scoring_time` and `score_drift` compare a number with a limit once there are enough rows or scores.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from models.guards import psi
from models.guards.betting import log_target, log_wealth
from models.guards.counts import PairedCounts
from models.guards.findings import Finding, GuardOutcome, bets, ratio_of, text
from models.guards.parameters import HISTOGRAM, number
from models.score_histogram import ScoreHistogram


@dataclass(frozen=True)
class Limits:
    """Parameters that are set once for all guards of a rollout; a guard uses those that its test needs."""

    alpha: float
    """Greatest probability, per bet, of a false proof: that a limit is broken, or that it is kept."""
    min_card_hours: int
    """Minimum of card-hours in which either model alerted, for a pass of `alert_rate` or `disagreement`."""


@dataclass(frozen=True)
class AlertRate:
    """Guard on the ratio of card-hours with an alert, challenger to champion."""

    NAME: ClassVar[str] = "alert_rate"
    max_ratio: float = number(0, 100)
    """Upper limit of the ratio."""
    min_ratio: float | None = number(0, 100, default=None)
    """Lower limit of the ratio; None: no lower limit."""

    def judge(self, counts: PairedCounts, limits: Limits) -> Finding:
        """Return breach if a bet proves a limit broken, pass if the opposite bets prove all limits kept.

        A pass also needs `limits.min_card_hours`.
        """
        pairs, target = counts.card_hours, log_target(limits.alpha)
        challenger, champion, both = pairs.only_challenger, pairs.only_champion, pairs.both
        high, low = self.max_ratio, self.min_ratio
        against = {"above_max": log_wealth(challenger, champion, both, high)}
        proofs = {"within_max": log_wealth(champion, challenger, both, 1 / high)}
        if low is not None:
            against["below_min"] = log_wealth(champion, challenger, both, 1 / low)
            proofs["within_min"] = log_wealth(challenger, champion, both, low)
        ratio = ratio_of(both + challenger, both + champion)
        evidence = {
            "card_hours": {"both": both, "only_champion": champion, "only_challenger": challenger},
            "ratio": ratio,
            **bets(against | proofs, target),
        }
        allowed = f"at most {high:g}" if low is None else f"{low:g} to {high:g}"
        detail = (
            f"alerts in {both + challenger} card-hours, the champion in {both + champion}: ratio "
            f"{text(ratio)}, wanted {allowed}"
        )
        if max(against.values()) >= target:
            return Finding(self.NAME, GuardOutcome.BREACH, True, detail, evidence)
        if pairs.total < limits.min_card_hours:
            detail += f"; {pairs.total} card-hours of {limits.min_card_hours}"
        elif min(proofs.values()) >= target:
            return Finding(self.NAME, GuardOutcome.PASS, True, detail, evidence)
        return Finding(self.NAME, GuardOutcome.INSUFFICIENT, pairs.total > 0, detail, evidence)


@dataclass(frozen=True)
class Failures:
    """Guard on the share of transactions for which the challenger returns no score."""

    NAME: ClassVar[str] = "failures"
    max_share: float = number(0, 0.5)
    """Upper limit of the share of transactions."""

    def judge(self, counts: PairedCounts, limits: Limits) -> Finding:
        """Return breach if a bet proves the limit broken, pass if the opposite bet proves it kept."""
        detail = f"no score for {counts.failures} of {counts.transactions} transactions"
        return _judge_share(self.NAME, counts.failures, counts.transactions, self.max_share, limits, detail)


@dataclass(frozen=True)
class Disagreement:
    """Guard on the number of card-hours in which exactly one of the two models alerted."""

    NAME: ClassVar[str] = "disagreement"
    max_share: float = number(0, 0.5)
    """Upper limit of these card-hours per transaction; a card's alerts within an hour count once."""

    def judge(self, counts: PairedCounts, limits: Limits) -> Finding:
        """Return breach if a bet proves the limit broken, pass if the opposite bet proves it kept.

        A pass also needs `limits.min_card_hours`.
        """
        hours, transactions = counts.card_hours, counts.transactions
        detail = f"{hours.one_sided} one-sided card-hours in {transactions} transactions"
        finding = _judge_share(self.NAME, hours.one_sided, transactions, self.max_share, limits, detail)
        if finding.outcome is GuardOutcome.PASS and hours.total < limits.min_card_hours:
            detail = f"{finding.detail}; {hours.total} card-hours of {limits.min_card_hours}"
            return Finding(self.NAME, GuardOutcome.INSUFFICIENT, True, detail, finding.evidence)
        return finding


@dataclass(frozen=True)
class ScoringTime:
    """Guard on the challenger's scoring time.

    A replay measures other times. That does no harm: a verdict affects decisions only through rollout events,
    and a replay reads these from the log instead of judging again.
    """

    NAME: ClassVar[str] = "scoring_time"
    max_ratio: float = number(0, 1000)
    """Upper limit of the ratio to the champion's time for the same rows."""
    min_rows: int = number(0, 1e9, default=10_000, whole=True)
    """Minimum of rows for a pass or a breach: the first calls of a model are slow."""

    def judge(self, counts: PairedCounts, limits: Limits) -> Finding:
        """Compare the times for the same rows."""
        ratio = ratio_of(counts.time_ms, counts.champion_time_ms)
        evidence = {
            "rows": counts.rows,
            "us_per_row": ratio_of(1000 * counts.time_ms, counts.rows),
            "champion_us_per_row": ratio_of(1000 * counts.champion_time_ms, counts.rows),
            "ratio": ratio,
        }
        detail = f"{text(ratio)} times the champion's time, wanted at most {self.max_ratio:g}"
        has_data = counts.rows > 0 and ratio is not None
        return _compare(
            self.NAME, ratio, self.max_ratio, has_data, (counts.rows, self.min_rows), "rows", detail, evidence
        )


@dataclass(frozen=True)
class ScoreDrift:
    """Guard on drift of the challenger's scores from its `training_scores`, or from the champion's scores."""

    NAME: ClassVar[str] = "score_drift"
    max_psi: float = number(0, 100)
    """Upper limit of the population stability index."""
    against: ScoreHistogram | None = field(default=None, metadata=HISTOGRAM)
    """The model version's training_scores; None: the champion's scores in the same trial."""
    min_scores: int = number(0, 1e9, default=1_000, whole=True)
    """Minimum of scores in each histogram for a pass or a breach."""

    def judge(self, counts: PairedCounts, limits: Limits) -> Finding:
        """Compare the histograms."""
        old = counts.champion_scores if self.against is None else self.against
        versus = "champion" if self.against is None else "training"
        value = psi.index(counts.scores, old)
        drift = None if value is None else round(value, 6)
        scores = (counts.scores.total, old.total)
        evidence = {"against": versus, "scores": scores[0], "scores_against": scores[1], "psi": drift}
        detail = f"index {text(drift)} against {versus} scores, wanted at most {self.max_psi:g}"
        if drift is None and all(scores):
            detail += f"; the histograms share fewer than {psi.FEWEST_BINS} bins"
        return _compare(
            self.NAME,
            drift,
            self.max_psi,
            drift is not None,
            (min(scores), self.min_scores),
            "scores",
            detail,
            evidence,
        )


@dataclass(frozen=True)
class Precision:
    """Guard on the share of frauds among the cards on which the challenger alerted and that have a label."""

    NAME: ClassVar[str] = "precision"
    min_precision: float = number(0, 0.99)
    """Lower limit of the share."""
    min_labelled: int = number(0, 1e9, default=30, whole=True)
    """Minimum of labelled cards for a pass."""

    def judge(self, counts: PairedCounts, limits: Limits) -> Finding:
        """Return breach if a bet proves the limit broken, pass if the opposite bet proves it kept.

        A pass also needs `min_labelled` cards.
        """
        cards, champion, low = counts.labelled, counts.champion_labelled, self.min_precision
        if cards is None:
            detail = f"labels have not been counted; the precision must be at least {low:g}"
            return Finding(self.NAME, GuardOutcome.INSUFFICIENT, False, detail, {"labelled": None})
        fraud, genuine, target = cards.fraud, cards.genuine, log_target(limits.alpha)
        # `log_wealth` compares two models: here an imaginary one alerts on the frauds, another on every card
        below = log_wealth(genuine, 0, fraud, 1 / low)
        within = log_wealth(0, genuine, fraud, low)
        evidence = {
            "labelled": cards.to_json(),
            "precision": ratio_of(fraud, cards.total),
            "champion_labelled": champion.to_json() if champion else None,
            "champion_precision": ratio_of(champion.fraud, champion.total) if champion else None,
            **bets({"below_min": below, "within_min": within}, target),
        }
        detail = (
            f"{fraud} frauds on {cards.total} labelled cards: precision {text(evidence['precision'])}, the "
            f"champion {text(evidence['champion_precision'])}, wanted at least {low:g}"
        )
        outcome = GuardOutcome.INSUFFICIENT
        if below >= target:
            outcome = GuardOutcome.BREACH
        elif cards.total < self.min_labelled:
            detail += f"; {cards.total} labelled cards of {self.min_labelled}"
        elif within >= target:
            outcome = GuardOutcome.PASS
        return Finding(self.NAME, outcome, cards.total > 0, detail, evidence)


Rule = AlertRate | Failures | Disagreement | ScoringTime | ScoreDrift | Precision
RULES: dict[str, type[Rule]] = {
    rule.NAME: rule for rule in (AlertRate, Failures, Disagreement, ScoringTime, ScoreDrift, Precision)
}
"""Name of a guard in a rollout -> class of the guard."""


def _judge_share(name: str, hits: int, trials: int, max_share: float, limits: Limits, detail: str) -> Finding:
    """Judge the share hits / trials; a trial is here one transaction.

    `log_wealth` compares two models: here an imaginary one alerts at each hit, another at each trial.
    """
    target, misses = log_target(limits.alpha), max(trials - hits, 0)
    above = log_wealth(0, misses, hits, max_share)
    within = log_wealth(misses, 0, hits, 1 / max_share)
    share = ratio_of(hits, trials)
    evidence = {
        "hits": hits,
        "trials": trials,
        "share": share,
        **bets({"above_max": above, "within_max": within}, target),
    }
    outcome = GuardOutcome.INSUFFICIENT
    if above >= target:
        outcome = GuardOutcome.BREACH
    elif within >= target:
        outcome = GuardOutcome.PASS
    return Finding(name, outcome, trials > 0, f"{detail}, wanted at most {max_share:g}", evidence)


def _compare(
    name: str,
    value: float | None,
    most: float,
    has_data: bool,
    size: tuple[int, int],
    unit: str,
    detail: str,
    evidence: dict[str, Any],
) -> Finding:
    """Compare a number with its limit if there is enough data; `size` is (available, required), in `unit`."""
    if size[0] < size[1]:
        detail += f"; {size[0]} {unit} of {size[1]}"
    if value is None or size[0] < size[1]:
        return Finding(name, GuardOutcome.INSUFFICIENT, has_data, detail, evidence)
    outcome = GuardOutcome.BREACH if value > most else GuardOutcome.PASS
    return Finding(name, outcome, has_data, detail, evidence)

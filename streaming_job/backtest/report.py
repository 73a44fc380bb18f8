"""The report of a backtest: the candidate's decisions beside the live ones, as JSON values. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from feature_store.layout import UNITS_PER_CURRENCY
from feature_store.utc import date_of, day_of, time_of
from models.policy import ESCALATED, Policy
from models.registry import ModelRef
from models.rules.score import Score
from streaming_job.backtest import comparison
from streaming_job.backtest.alerts import Alert, LiveAlerts
from streaming_job.backtest.comparison import BACKTEST, LIVE
from streaming_job.backtest.labels import OUTCOMES, Labels
from streaming_job.backtest.tally import Tally
from streaming_job.backtest.window import History

STEPS = 10
"""The thresholds of the table leave about 1/STEPS, 2/STEPS ... of the alerts that the score alone raised."""


@dataclass(frozen=True)
class Inputs:
    """What a report is made of."""

    model: ModelRef
    policy: Policy
    history: History
    tally: Tally
    live: LiveAlerts
    labels: Labels
    budget: float | None
    """Greatest number of alerts a day; None: no budget."""


def report_of(inputs: Inputs) -> dict[str, Any]:
    """Return the report as JSON values; amounts are in units of their currency."""
    tally, live, window = inputs.tally, inputs.live, inputs.tally.window
    alerts, labels, days = tally.alerts, inputs.labels, window.days
    threshold = inputs.policy.threshold
    found = list(comparison.pairs(live.sent, alerts))
    history = inputs.history
    return {
        "window": {"since": time_of(window.since), "until": time_of(window.until), "days": days},
        "history": {
            "begins": time_of(history.begins),
            "transactions": tally.recalled,
            "whole": history.is_whole,
            "windows_whole_from": time_of(history.windows_whole_from),
            "cut": {"transactions": tally.cut, "cards": len(tally.cut_cards)},
        },
        "candidate": {
            "model": str(inputs.model),
            "digest": inputs.model.digest,
            "policy": asdict(inputs.policy),
            "policy_digest": inputs.policy.digest(),
        },
        "live_rollouts": live.rollouts,
        "transactions": {
            "accepted": tally.transactions.total(),
            "repeated": tally.duplicates,
            "dead_letters": dict(sorted(tally.refused.items())),
            "by_day": {date_of(day): tally.transactions[day] for day in sorted(tally.transactions)},
        },
        "labels": {
            "newest": time_of(labels.newest) if labels.newest else None,
            "transactions": _by_currency(tally.outcomes, 1),
            "money": _by_currency(tally.money, UNITS_PER_CURRENCY),
        },
        LIVE: comparison.side(live.sent, live.suppressed, labels, days),
        BACKTEST: comparison.side(alerts, tally.suppressed, labels, days),
        "changes": comparison.changes(found, labels),
        "thresholds": higher_thresholds(threshold, alerts, labels, days),
        "budget": None if inputs.budget is None else budget_use(threshold, alerts, inputs.budget, days),
        "sample": comparison.sample(found, labels),
    }


def _by_currency(counts: Mapping[tuple[str, str], int], unit: int) -> dict[str, dict[str, float]]:
    """Return counts or sums by currency and outcome."""
    result: dict[str, dict[str, float]] = {}
    for (currency, outcome), number in sorted(counts.items()):
        result.setdefault(currency, {})[outcome] = number / unit if unit > 1 else number
    return result


def higher_thresholds(
    threshold: float, alerts: Sequence[Alert], labels: Labels, days: float
) -> list[dict[str, Any]]:
    """Return the alerts that thresholds leave, by outcome; the policy's own comes first.

    Args:
        days: length of the window.
    """
    scores = _scores(alerts)
    steps = {scores[len(scores) * step // STEPS] for step in range(1, STEPS)} if scores else set()
    rows = []
    for least in sorted({threshold, *steps}):
        left = [alert for alert in alerts if (score := _only_score(alert)) is None or score >= least]
        known = Counter(labels.of(alert.card_id, alert.transaction_id) for alert in left)
        outcomes = {outcome: known[outcome] for outcome in OUTCOMES}
        rows.append({"threshold": least, "alerts_a_day": len(left) / days, **outcomes})
    return rows


def budget_use(threshold: float, alerts: Sequence[Alert], most: float, days: float) -> dict[str, Any]:
    """Return how the alerts compare with a budget.

    Args:
        threshold: the policy's.
        most: greatest number of alerts a day.
        days: length of the window.
    """
    counts = Counter(day_of(alert.arrival) for alert in alerts)
    return {
        "alerts_a_day": most,
        "used": len(alerts) / days / most,
        "days_over": [date_of(day) for day, count in sorted(counts.items()) if count > most],
        "threshold": _least_threshold(threshold, alerts, int(most * days)),
    }


def _least_threshold(threshold: float, alerts: Sequence[Alert], most: int) -> float | None:
    """Return the least threshold that leaves at most so many alerts: the policy's own, or an alert's score.

    None if no alert's score does.
    """
    scores = _scores(alerts)
    room = most - (len(alerts) - len(scores))
    if room >= len(scores):
        return threshold
    if room <= 0:
        return None
    # the first alert for which there is no room must not reach the threshold
    refused = scores[-room - 1]
    return next((score for score in scores[-room:] if score > refused), None)


def _scores(alerts: Sequence[Alert]) -> list[float]:
    """Return the scores of the alerts that the score alone raised, ascending."""
    return sorted(score for alert in alerts if (score := _only_score(alert)) is not None)


def _only_score(alert: Alert) -> float | None:
    """Return the score of an alert that no other rule raised; None for all others."""
    return alert.score if {*alert.rules} - {ESCALATED} == {Score.name} else None

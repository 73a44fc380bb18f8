"""What other thresholds would leave of a candidate's alerts, and which one keeps a budget. Pure.

An alert stays if another rule than the score fired, or if its score reaches the threshold. That a card with
fewer alerts is escalated later, and that a cooldown then suppresses other alerts, is left out of account: a
backtest with that threshold tells exactly.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from models.policy import ESCALATED
from models.rules.score import Score
from streaming_job.backtest.alerts import Alert
from streaming_job.backtest.labels import OUTCOMES, Labels
from streaming_job.backtest.window import date_of, day_of

STEPS = 10
"""The thresholds of the table leave about 1/STEPS, 2/STEPS ... of the alerts that the score alone raised."""


def table(threshold: float, alerts: Sequence[Alert], labels: Labels, days: float) -> list[dict[str, Any]]:
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


def budget(threshold: float, alerts: Sequence[Alert], most: float, days: float) -> dict[str, Any]:
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

"""The comparison of two sides' alerts, the live job's and the candidate's. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from feature_store.layout import UNITS_PER_CURRENCY
from feature_store.utc import date_of, day_of, time_of
from models.parameters import DECLINE, REVIEW
from streaming_job.backtest.alerts import Alert
from streaming_job.backtest.labels import OUTCOMES, Labels
from streaming_job.masking import masked

SAMPLE = 50
"""Most transactions in the sample."""
LIVE, BACKTEST = "live", "backtest"
NO_ALERT = "none"
"""Decision on a transaction without an alert."""


def side(alerts: Sequence[Alert], suppressed: int, labels: Labels, days: float) -> dict[str, Any]:
    """Return the counts of one side's alerts.

    Args:
        suppressed: number of alerts that a cooldown kept back.
        days: length of the window.
    """
    by_day: dict[str, Counter[str]] = {}
    by_rule: dict[str, Counter[str]] = {}
    decisions = {decision: dict.fromkeys(OUTCOMES, 0) for decision in (DECLINE, REVIEW)}
    money: dict[str, dict[str, Counter[str]]] = {DECLINE: {}, REVIEW: {}}
    for alert in alerts:
        outcome = labels.of(alert.card_id, alert.transaction_id)
        by_day.setdefault(date_of(day_of(alert.arrival)), Counter())[alert.decision] += 1
        for rule in alert.rules:
            by_rule.setdefault(rule, Counter())[outcome] += 1
        decisions[alert.decision][outcome] += 1
        units = round(alert.amount * UNITS_PER_CURRENCY)
        money[alert.decision].setdefault(alert.currency, Counter())[outcome] += units
    return {
        "alerts": len(alerts),
        "suppressed": suppressed,
        "alerts_a_day": len(alerts) / days,
        "by_day": {day: dict(counts) for day, counts in sorted(by_day.items())},
        "by_rule": {rule: dict(counts) for rule, counts in sorted(by_rule.items())},
        "by_decision": decisions,
        "outcomes": {
            outcome: sum(decisions[decision][outcome] for decision in decisions) for outcome in OUTCOMES
        },
        "money": {
            decision: {
                currency: {outcome: units / UNITS_PER_CURRENCY for outcome, units in sums.items()}
                for currency, sums in sorted(of_decision.items())
            }
            for decision, of_decision in money.items()
        },
    }


class Pair(NamedTuple):
    """A transaction with an alert of at least one side."""

    live: str
    """Decision of the live job, or NO_ALERT."""
    backtest: str
    """Decision of the candidate, or NO_ALERT."""
    alert: Alert
    """The candidate's alert if it has one, else the live job's."""


def pairs(live: Sequence[Alert], backtest: Sequence[Alert]) -> Iterator[Pair]:
    """Yield each transaction with an alert of either side once."""
    old, new = ({alert.place: alert for alert in alerts} for alerts in (live, backtest))
    for place, alert in (old | new).items():
        before, after = (side[place].decision if place in side else NO_ALERT for side in (old, new))
        yield Pair(before, after, alert)


def changes(found: Sequence[Pair], labels: Labels) -> dict[str, Any]:
    """Count transactions by what the candidate changes: nothing, the decision, a new alert, one less."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("same", "other_decision", "new", "gone")}
    for pair in found:
        if pair.live == pair.backtest:
            kind = "same"
        elif pair.live == NO_ALERT:
            kind = "new"
        elif pair.backtest == NO_ALERT:
            kind = "gone"
        else:
            kind = "other_decision"
        counts[kind][labels.of(pair.alert.card_id, pair.alert.transaction_id)] += 1
    return {
        kind: {"alerts": known.total(), **{outcome: known[outcome] for outcome in OUTCOMES}}
        for kind, known in counts.items()
    }


def sample(found: Sequence[Pair], labels: Labels) -> list[dict[str, Any]]:
    """Return up to SAMPLE transactions: those that are decided differently first.

    Which of these follows from the ids of their alerts. The ids are hashes, so the sample is as good as a
    random one, and the same at every run.
    """
    ordered = sorted(found, key=lambda pair: (pair.live == pair.backtest, pair.alert.alert_id))
    return [_row(pair, labels) for pair in ordered[:SAMPLE]]


def _row(pair: Pair, labels: Labels) -> dict[str, Any]:
    alert = pair.alert
    same = ("partition", "offset", "amount", "currency", "country", "merchant_id", "score")
    return {
        "arrival_time": time_of(alert.arrival),
        "card": masked(alert.card_id),
        **{name: getattr(alert, name) for name in same},
        LIVE: pair.live,
        BACKTEST: pair.backtest,
        "rules": list(alert.rules),
        "reasons": list(alert.reasons),
        "outcome": labels.of(alert.card_id, alert.transaction_id),
    }

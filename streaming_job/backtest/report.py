"""The report of a backtest: the candidate's decisions beside the live ones, as JSON values. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from feature_store.layout import UNITS_PER_CURRENCY
from models.policy import Policy
from models.registry import ModelRef
from streaming_job.backtest import comparison, thresholds
from streaming_job.backtest.alerts import LiveAlerts
from streaming_job.backtest.comparison import BACKTEST, LIVE
from streaming_job.backtest.labels import Labels
from streaming_job.backtest.tally import Tally
from streaming_job.backtest.window import History, date_of, time_of


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
            "model": f"{inputs.model.name}/{inputs.model.version}",
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
        "thresholds": thresholds.table(threshold, alerts, labels, days),
        "budget": None
        if inputs.budget is None
        else thresholds.budget(threshold, alerts, inputs.budget, days),
        "sample": comparison.sample(found, labels),
    }


def _by_currency(counts: Mapping[tuple[str, str], int], unit: int) -> dict[str, dict[str, float]]:
    """Return counts or sums by currency and outcome."""
    result: dict[str, dict[str, float]] = {}
    for (currency, outcome), number in sorted(counts.items()):
        result.setdefault(currency, {})[outcome] = number / unit if unit > 1 else number
    return result

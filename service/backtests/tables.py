"""The report of a backtest as tables of text, which terminal and page show. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from models.parameters import DECLINE, REVIEW
from streaming_job.backtest.comparison import BACKTEST, LIVE
from streaming_job.backtest.labels import OUTCOMES

SIDES = (LIVE, BACKTEST)
CHANGES = {
    "same": "decided alike",
    "other_decision": "other decision",
    "new": "only the backtest alerts",
    "gone": "only live alerted",
}


class Table(NamedTuple):
    """A table whose first column is text, and whose others are numbers."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def facts(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about what was compared."""
    window, history, candidate = report["window"], report["history"], report["candidate"]
    transactions = report["transactions"]
    yield f"{candidate['model']} with policy {candidate['policy_digest'][:12]}: " + ", ".join(
        f"{name} {value}" for name, value in candidate["policy"].items()
    )
    yield (
        f"{transactions['accepted']:,} transactions that arrived from {window['since']} to "
        f"{window['until']}, {window['days']:.2f} days; {transactions['repeated']:,} repetitions and "
        f"{sum(transactions['dead_letters'].values()):,} dead letters are left out"
    )
    yield f"history: {history['transactions']:,} transactions from {history['begins']} on; {_cut(history)}"
    newest = report["labels"]["newest"]
    yield f"labels up to {newest}" if newest else "no labels: every outcome is unknown"
    rollouts = ", ".join(f"{name} ({alerts:,})" for name, alerts in report["live_rollouts"].items())
    yield f"live alerts by rollout: {rollouts or 'none'}"
    if report["budget"]:
        yield _budget(report["budget"])


def _cut(history: Mapping[str, Any]) -> str:
    if history["whole"]:
        return "the archive begins with the log, so no card's history is cut"
    cut = history["cut"]
    return (
        f"windows are whole from {history['windows_whole_from']} on; before it, windows of "
        f"{cut['cards']:,} cards ({cut['transactions']:,} transactions) may lack their beginnings; features "
        "over all of a card's history begin with this history"
    )


def _budget(budget: Mapping[str, Any]) -> str:
    days = len(budget["days_over"])
    fits = budget["threshold"]
    remedy = (
        "no alert's score keeps it as threshold: other rules, or alerts with the greatest score, are too many"
        if fits is None
        else f"threshold {fits} keeps it"  # in full: a rounded one may keep it no longer
    )  # fmt: skip
    return (
        f"budget of {budget['alerts_a_day']:g} alerts a day: {budget['used']:.0%} used, {days} days over it; "
        f"{remedy}"
    )


def tables(report: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables, the most important first."""
    yield Table("Alerts", ("", *SIDES), list(_headline(report)))
    outcomes = [
        [CHANGES[kind], f"{counts['alerts']:,}", *(f"{counts[outcome]:,}" for outcome in OUTCOMES)]
        for kind, counts in report["changes"].items()
    ]
    yield Table("Changes", ("transactions", "alerts", *OUTCOMES), outcomes)
    yield Table("Alerts by rule", ("rule", *SIDES), list(_by_rule(report)))
    yield Table("Alerts by day", ("day", "transactions", *SIDES, "of these declines"), list(_by_day(report)))
    yield Table(
        "Higher thresholds",
        ("threshold", "alerts a day", *OUTCOMES),
        [
            [
                f"{row['threshold']:.4f}",
                f"{row['alerts_a_day']:,.1f}",
                *(f"{row[outcome]:,}" for outcome in OUTCOMES),
            ]
            for row in report["thresholds"]
        ],
    )


def sample_table(report: Mapping[str, Any]) -> Table:
    """Return the sample of transactions."""
    rows = [
        [
            row["arrival_time"],
            row["card"],
            f"{row['amount']:,.2f} {row['currency']}",
            row[LIVE],
            row[BACKTEST],
            "" if row["score"] is None else f"{row['score']:.4f}",
            " ".join(row["rules"]),
            " ".join(row["reasons"]),
            row["outcome"],
        ]
        for row in report["sample"]
    ]
    head = ("arrival", "card", "amount", *SIDES, "score", "rules", "reasons", "outcome")
    return Table("Sample", head, rows)


def _headline(report: Mapping[str, Any]) -> Iterator[list[str]]:
    sides = [report[side] for side in SIDES]
    yield ["alerts a day", *(f"{side['alerts_a_day']:,.1f}" for side in sides)]
    yield ["alerts", *(f"{side['alerts']:,}" for side in sides)]
    yield ["suppressed by a cooldown", *(f"{side['suppressed']:,}" for side in sides)]
    for decision in (DECLINE, REVIEW):
        for outcome in OUTCOMES:
            counts = [side["by_decision"][decision][outcome] for side in sides]
            yield [f"{decision}, {outcome}", *(f"{count:,}" for count in counts)]
    known = report["labels"]["transactions"]
    frauds = sum(counts.get("fraud", 0) for counts in known.values())
    yield ["share of the known frauds", *(_share(side["outcomes"]["fraud"], frauds) for side in sides)]
    stopped = [side["money"][DECLINE] for side in sides]
    for currency in sorted({currency for sums in stopped for currency in sums}):
        for outcome in OUTCOMES:
            amounts = [sums.get(currency, {}).get(outcome, 0) for sums in stopped]
            if any(amounts):
                yield [f"{currency} stopped, {outcome}", *(f"{amount:,.2f}" for amount in amounts)]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%} of {whole:,}" if whole else "none known"


def _by_rule(report: Mapping[str, Any]) -> Iterator[list[str]]:
    by_rule = [report[side]["by_rule"] for side in SIDES]
    for rule in sorted({rule for rules in by_rule for rule in rules}):
        yield [rule, *(f"{sum(rules.get(rule, {}).values()):,}" for rules in by_rule)]


def _by_day(report: Mapping[str, Any]) -> Iterator[list[str]]:
    by_day = [report[side]["by_day"] for side in SIDES]
    for day, transactions in report["transactions"]["by_day"].items():
        alerts = [f"{sum(days.get(day, {}).values()):,}" for days in by_day]
        yield [day, f"{transactions:,}", *alerts, f"{by_day[1].get(day, {}).get(DECLINE, 0):,}"]

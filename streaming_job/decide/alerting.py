"""The alerts of a block, in log order: counted per card, escalated, suppressed by cooldowns, and built.

Only these rows are handled one by one: those with an alert, those at which a challenger's verdict differs
from the champion's, and those at which a card starts afresh.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.layout import UNKNOWN_VERSION, country_name, rows_of
from feature_store.state.group_state import AlertCounts, AlertTerms, BatchFeatures, GroupState
from streaming_job.decide import alerts, shadow_alerts
from streaming_job.decide.alerts import AlertContext
from streaming_job.decide.ruling import Ruling
from streaming_job.decode.transactions import split_quote
from streaming_job.log.losses import Losses
from streaming_job.progress.outcome import Outcome

RulingRow = tuple[Ruling, int]
"""A ruling, and a row of it."""


def alert(
    state: GroupState,
    outcome: Outcome,
    topic: str,
    release: str,
    losses: Losses,
    block: NDArray[np.void],
    quotes: pa.BinaryArray,
    cards: NDArray[np.int32],
    applied: BatchFeatures,
    rulings: Sequence[Ruling],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Make the alerts, suppressed alerts and shadow alerts of a block.

    Args:
        state: the key group's state, which counts the alerts of each card.
        outcome: receives the alerts, unless it is silent.
        block: records of TRANSACTION, shape (n,).
        quotes: the text fields that an alert copies from its transaction (`transactions.quote`), n rows.
        cards: indices of the transactions' cards in the state (`card_numbers`), shape (n,).
        rulings: the rulings of all accepted transactions.

    Returns:
        Masks of the alerts, and of the suppressed ones among them, shape (n,) each.
    """
    alerted, suppressed = np.zeros(block.size, np.bool_), np.zeros(block.size, np.bool_)
    ruling_rows: dict[int, RulingRow] = {}
    for ruling in rulings:
        alerts_here = ruling.alerted
        alerted[ruling.rows] = alerts_here
        differs = ruling.differs
        for index in np.flatnonzero(alerts_here if differs is None else alerts_here | differs).tolist():
            ruling_rows[int(ruling.rows[index])] = ruling, index
    affected = applied.restarted.copy()
    affected[list(ruling_rows)] = True
    rows = np.flatnonzero(affected)
    if not rows.size:
        return alerted, suppressed
    counts = state.weigh_alerts(
        cards[rows], block["arrival"][rows], alerted[rows], applied.restarted[rows],
        _terms(block.size, rulings, rows),
    )  # fmt: skip
    suppressed[rows] = counts.last_sent_ms > 0
    if outcome.is_silent:
        return alerted, suppressed
    top_features, failures = _explain(rulings, alerted)
    contexts = _contexts(state, topic, release, losses, block, quotes, applied, rows, counts)
    for row, last_sent_ms, context in zip(rows.tolist(), counts.last_sent_ms.tolist(), contexts, strict=True):
        if row not in ruling_rows:
            continue
        ruling, index = ruling_rows[row]
        if alerted[row]:
            record, rules = alerts.build(
                context, ruling, index, top_features[row], failures.get(row), last_sent_ms
            )
            if last_sent_ms:
                outcome.records["suppressed_alerts"].append(record)
            else:
                outcome.records["fraud_alerts"].append(record)
                outcome.rules.update(rules)
        outcome.records["shadow_alerts"] += shadow_alerts.build(context, ruling, index)
    return alerted, suppressed


def _terms(n: int, rulings: Sequence[Ruling], rows: NDArray[np.int64]) -> AlertTerms:
    """Return, for some of a block's n rows, the policy's escalation and cooldown, and whether it declines."""
    declined = np.zeros(n, np.bool_)
    escalate_after, cooldown_ms = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for ruling in rulings:
        declined[ruling.rows] = ruling.declined
        escalate_after[ruling.rows] = ruling.number(lambda policy: policy.escalate_after or 0)
        cooldown_ms[ruling.rows] = ruling.number(lambda policy: 1000 * policy.cooldown_s)
    return AlertTerms(declined[rows], escalate_after[rows], cooldown_ms[rows])


def _contexts(
    state: GroupState,
    topic: str,
    release: str,
    losses: Losses,
    block: NDArray[np.void],
    quotes: pa.BinaryArray,
    applied: BatchFeatures,
    rows: NDArray[np.int64],
    counts: AlertCounts,
) -> Iterator[AlertContext]:
    """Yield the contexts of some of a block's rows."""
    records, versions, profiles = rows_of(block, rows), applied.version[rows].tolist(), state.profiles
    columns = (
        *(records[name].tolist() for name in ("amount", "country", "time", "arrival", "partition", "offset")),
        applied.late[rows].tolist(),
        applied.conflicting[rows].tolist(),
        counts.day.tolist(),
        counts.total.tolist(),
    )
    cut_before = losses.windows_before or 0
    texts = map(split_quote, quotes.take(pa.array(rows)).to_pylist())
    for text, version, row in zip(texts, versions, zip(*columns, strict=True), strict=True):
        units, country, time, arrival, partition, offset, *flags_and_counts = row
        profile = profiles[version] if version >= 0 else None
        yield AlertContext._make(
            (*text, units, country_name(country), time, arrival, release, topic, partition, offset, profile,
             version == UNKNOWN_VERSION, arrival < cut_before, *flags_and_counts)
        )  # fmt: skip


def _explain(
    rulings: Sequence[Ruling], alerted: NDArray[np.bool_]
) -> tuple[dict[int, list[dict[str, Any]]], dict[int, str]]:
    """Return by block row the `reasons` of each alert, and how the deciding model failed, where it did."""
    top_features: dict[int, list[dict[str, Any]]] = {}
    failures: dict[int, str] = {}
    for ruling in rulings:
        indices = np.flatnonzero(alerted[ruling.rows])
        if indices.size:
            contributions, failed = ruling.explained(indices)
            top_features |= zip(
                ruling.rows[indices].tolist(),
                alerts.reasons(ruling.features[indices], contributions),
                strict=True,
            )
            failures |= {int(ruling.rows[index]): failure for index, failure in failed.items()}
    return top_features, failures

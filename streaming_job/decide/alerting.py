"""Alerts of a block in log order: counted per card, escalated, held back, and built.

Only rows on which somebody alerts are looked at one by one.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.group_state import AlertTerms, Applied, GroupState
from streaming_job.decide import alerts, shadow_alerts
from streaming_job.decide.alerts import Told
from streaming_job.decide.ruling import Ruling
from streaming_job.progress.outcome import Outcome

Place = tuple[Ruling, int]
"""A row of a block: its ruling, and its row there."""


def alert(
    state: GroupState,
    outcome: Outcome,
    topic: str,
    block: NDArray[np.void],
    quotes: pa.BinaryArray,
    cards: NDArray[np.int32],
    applied: Applied,
    rulings: Sequence[Ruling],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Make alerts, suppressed and shadow alerts of a block.

    Args:
        state: of the key group; the alerts are counted there.
        outcome: where they go.
        topic: of the transactions.
        block: records of TRANSACTION, shape (n,).
        quotes: what alerts quote of them, n rows.
        cards: number of each one's card, shape (n,).
        applied: what they came to.
        rulings: of all accepted ones.

    Returns:
        Which became alerts, and which of those were held back, shape (n,) each.

    Raises:
        ModelError: not the champion failed but what it runs on.
    """
    alerted, suppressed = np.zeros(block.size, np.bool_), np.zeros(block.size, np.bool_)
    places: dict[int, Place] = {}
    for ruling in rulings:
        mine = ruling.alerted
        alerted[ruling.rows] = mine
        differs = ruling.differs
        for at in np.flatnonzero(mine if differs is None else mine | differs).tolist():
            places[int(ruling.rows[at])] = ruling, at
    told_of = applied.restarted.copy()
    told_of[list(places)] = True
    rows = np.flatnonzero(told_of)
    if not rows.size:
        return alerted, suppressed
    counts = state.weigh_alerts(
        cards[rows], block["arrival"][rows], alerted[rows], applied.restarted[rows],
        _terms(block.size, rulings, rows),
    )  # fmt: skip
    suppressed[rows] = counts.held_since > 0
    contributions, failures = _explain(rulings, alerted)
    for row, day, total, held_since in zip(
        rows.tolist(), counts.day.tolist(), counts.total.tolist(), counts.held_since.tolist(), strict=True
    ):
        if row not in places:
            continue
        ruling, at = places[row]
        version = int(applied.version[row])
        told = Told(
            quotes[row].as_py(), block[row], topic, state.profiles[version] if version >= 0 else None,
            bool(applied.late[row]), bool(applied.conflicting[row]), day, total,
        )  # fmt: skip
        if alerted[row]:
            made, rules = alerts.build(told, ruling, at, contributions[row], failures.get(row), held_since)
            if held_since:
                outcome.suppressed.append(made)
            else:
                outcome.alerts.append(made)
                outcome.rules.update(rules)
        outcome.shadow_alerts += shadow_alerts.build(told, ruling, at)
    return alerted, suppressed


def _terms(n: int, rulings: Sequence[Ruling], rows: NDArray[np.int64]) -> AlertTerms:
    """What the policies say of some of a block's n rows."""
    declined = np.zeros(n, np.bool_)
    escalate_after, cooldown_ms = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for ruling in rulings:
        declined[ruling.rows] = ruling.declined
        escalate_after[ruling.rows] = ruling.number(lambda policy: policy.escalate_after or 0)
        cooldown_ms[ruling.rows] = ruling.number(lambda policy: 1000 * policy.cooldown_s)
    return AlertTerms(declined[rows], escalate_after[rows], cooldown_ms[rows])


def _explain(
    rulings: Sequence[Ruling], alerted: NDArray[np.bool_]
) -> tuple[dict[int, NDArray[np.float64]], dict[int, str]]:
    """By row of the block, of alerts: contributions of the features; and how the deciding model failed."""
    contributions: dict[int, NDArray[np.float64]] = {}
    failures: dict[int, str] = {}
    for ruling in rulings:
        mine = np.flatnonzero(alerted[ruling.rows])
        if mine.size:
            found, failed = ruling.explained(mine)
            contributions |= zip(ruling.rows[mine].tolist(), found, strict=True)
            failures |= {int(ruling.rows[at]): why for at, why in failed.items()}
    return contributions, failures

"""Counts, escalation and cooldown of a card's alerts equal those of a loop over all earlier alerts."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from harness.log_world import DAY, HOUR, MINUTE, START
from histories import History
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.state.arena import MemoryArena
from feature_store.state.deltas import Delta
from feature_store.state.group_state import AlertTerms, GroupState
from feature_store.state.journal import MemoryPieces, Meta, append, load_meta, rebuild, seal

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Row:
    """A transaction of card `card` that may be an alert."""

    card: str
    wait: int
    is_alert: bool
    is_declined: bool
    escalate_after: int
    cooldown_ms: int


ROWS = st.lists(
    st.builds(
        Row,
        card=st.sampled_from("abc"),
        wait=st.sampled_from([0, 1, MINUTE, HOUR, 7 * HOUR, DAY, 2 * DAY]),
        is_alert=st.integers(0, 3).map(bool),
        is_declined=st.integers(0, 5).map(lambda n: n == 0),
        escalate_after=st.sampled_from([0, 0, 1, 2, 4]),
        cooldown_ms=st.sampled_from([0, MINUTE, HOUR, 2 * DAY]),
    ),
    min_size=1,
    max_size=40,
)


KNOWN = [Row(card, 0, False, False, 0, 0) for card in "aabbcc"]
"""Two transactions of each card: a card with only one would be forgotten, with its alerts, after 9 days. All
rows together span less than the 91 days after which any card is."""


def naive(rows: list[Row], restarted: list[bool]) -> list[tuple[int, int, int]]:
    """Compute for each row: (day, total, arrival of the sent alert that suppresses this one, or else 0).

    `day` and `total` are the card's alerts in 24 clock hours and since it last started afresh; they include
    the row itself, even if it is no alert.
    `restarted`: for each row, whether the card starts afresh with it.
    """
    out: list[tuple[int, int, int]] = []
    alerts: list[tuple[str, int]] = []
    sent: list[tuple[str, int]] = []
    arrival = START
    for row, anew in zip(rows, restarted, strict=True):
        arrival += row.wait
        if anew:
            alerts = [alert for alert in alerts if alert[0] != row.card]
            sent = [alert for alert in sent if alert[0] != row.card]
        mine = [at for card, at in alerts if card == row.card]
        day = 1 + sum(at // HOUR > arrival // HOUR - 24 for at in mine)
        held = 0
        if row.is_alert:
            alerts.append((row.card, arrival))
            is_urgent = row.is_declined or (row.escalate_after and day >= row.escalate_after)
            last = max((at for card, at in sent if card == row.card), default=None)
            if not is_urgent and row.cooldown_ms and last is not None and arrival - last <= row.cooldown_ms:
                held = last
            else:
                sent.append((row.card, arrival))
        out.append((day, len(mine) + 1, held))
    return out


@examples(80, thorough=5_000)
@given(ROWS, st.sets(st.integers(1, 39)), st.booleans())
def test_counts_escalation_and_cooldown_are_those_of_a_naive_reading(
    rows: list[Row], cuts: set[int], rebuilds: bool
) -> None:
    history = History()
    arrival = 0
    rows = KNOWN + rows
    for row in rows:
        arrival += row.wait
        history.tx(arrival, card=row.card)
    batch = history.records()
    state, meta, store = GroupState(MemoryArena()), Meta(), MemoryPieces()
    result: list[tuple[int, int, int]] = []
    restarted: list[bool] = []
    borders = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for start, end in pairwise(borders):
        part, part_rows = batch[start:end], rows[start:end]
        cards = state.card_numbers(part)
        applied = state.apply(part, cards)
        alerted = np.array([row.is_alert for row in part_rows])
        terms = AlertTerms(
            np.array([row.is_declined for row in part_rows]),
            np.array([row.escalate_after for row in part_rows]),
            np.array([row.cooldown_ms for row in part_rows]),
        )
        restarted += applied.restarted.tolist()
        counts = state.weigh_alerts(cards, part["arrival"], alerted, applied.restarted, terms)
        result += zip(counts.day.tolist(), counts.total.tolist(), counts.last_sent_ms.tolist(), strict=True)
        nothing = state.profiles[:0], np.zeros(0, np.int32)
        append(store, meta, state, Delta(*nothing, part, cards, alerted, counts.last_sent_ms > 0))
        seal(store, meta)
        if rebuilds:
            state, meta = GroupState(MemoryArena()), load_meta(store)
            rebuild(store, meta, state)
    assert result == naive(rows, restarted)

"""How well scores find frauds: card precision, detection in time, money saved."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Scored:
    """n test transactions in order of arrival, with their scores."""

    day: NDArray[np.int64]
    """Number of each one's day."""
    card: NDArray[np.int64]
    """Number of each one's card."""
    arrival: NDArray[np.int64]
    """ms."""
    amount: NDArray[np.float64]
    """In the currency of the file."""
    fraud: NDArray[np.bool_]
    score: NDArray[np.float64]


def card_precision(scored: Scored, k: int = 100) -> NDArray[np.float64]:
    """Card precision at k of each test day (handbook, chapter 4).

    A day's cards are ranked by their highest score; a card is compromised if one of its transactions that day
    is fraud. The precision is the number of compromised ones among the first k, over k, even where a day has
    fewer cards. Those that were found are dropped from later days. Of equal scores the lower card number
    comes first.

    Returns:
        One value a day, in order of the days.
    """
    caught = np.zeros(int(scored.card.max(initial=-1)) + 1, dtype=np.bool_)
    by_day = []
    for day in np.unique(scored.day):
        rows = np.flatnonzero((scored.day == day) & ~caught[scored.card])
        cards, of = np.unique(scored.card[rows], return_inverse=True)
        highest = np.full(cards.size, -np.inf)
        np.maximum.at(highest, of, scored.score[rows])
        compromised = np.zeros(cards.size, dtype=np.bool_)
        np.logical_or.at(compromised, of, scored.fraud[rows])
        top = np.argsort(-highest, kind="stable")[:k]
        found = top[compromised[top]]
        caught[cards[found]] = True
        by_day.append(found.size / k)
    return np.array(by_day)


@dataclass(frozen=True)
class Detection:
    """What alerts at a threshold mean for the cards: each card's first true alert stops it."""

    compromised_cards: int
    """Cards with fraud."""
    detected_cards: int
    """Those with an alert on one of their frauds."""
    hours_to_detection: float
    """Median over detected cards, from the first fraud to the first alert on one; NaN without any."""
    frauds_before_detection: float
    """Mean over detected cards of the frauds before that alert; NaN without any."""
    fraud_amount: float
    """Sum of all frauds' amounts."""
    saved_amount: float
    """Sum of the amounts of the alerted frauds and of all later frauds of their cards."""

    @property
    def saved_share(self) -> float:
        """Share of the frauds' money that is saved; NaN without any."""
        return self.saved_amount / self.fraud_amount if self.fraud_amount > 0 else float("nan")


def detection(scored: Scored, threshold: float) -> Detection:
    """Follow each compromised card until an alert on one of its frauds.

    Args:
        scored: in order of arrival.
        threshold: alerts are scores at or above it.
    """
    rows = np.flatnonzero(scored.fraud)
    rows = rows[np.argsort(scored.card[rows], kind="stable")]  # by card, then by arrival
    cards, starts = np.unique(scored.card[rows], return_index=True)
    hours, missed = [], []
    saved = 0.0
    for frauds in np.split(rows, starts[1:]) if cards.size else []:
        alerted = np.flatnonzero(scored.score[frauds] >= threshold)
        if not alerted.size:
            continue
        first = int(alerted[0])
        hours.append((scored.arrival[frauds[first]] - scored.arrival[frauds[0]]) / HOUR_MS)
        missed.append(first)
        saved += float(scored.amount[frauds[first:]].sum())
    nothing = float("nan")
    return Detection(
        int(cards.size),
        len(hours),
        float(np.median(hours)) if hours else nothing,
        float(np.mean(missed)) if missed else nothing,
        float(scored.amount[rows].sum()),
        saved,
    )


@dataclass(frozen=True)
class ScenarioRecall:
    """Frauds of one kind at a threshold."""

    scenario: str
    frauds: int
    alerted: int
    amount: float
    """Sum of their amounts."""
    alerted_amount: float
    """Sum of the amounts of those alerted."""


def by_scenario(scored: Scored, scenario: NDArray[np.str_], threshold: float) -> list[ScenarioRecall]:
    """Each kind of fraud, in the order of their names.

    Args:
        scored: n transactions.
        scenario: name of each one's kind, looked at for frauds only, shape (n,).
        threshold: alerts are scores at or above it.
    """
    alerts = scored.score >= threshold
    found = []
    for name in np.unique(scenario[scored.fraud]):
        of = scored.fraud & (scenario == name)
        found.append(
            ScenarioRecall(
                str(name),
                int(of.sum()),
                int((of & alerts).sum()),
                float(scored.amount[of].sum()),
                float(scored.amount[of & alerts].sum()),
            )
        )
    return found

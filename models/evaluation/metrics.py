"""Evaluation metrics of fraud scores: card precision, time to detection, money saved, recall by scenario."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import HOUR_MS


@dataclass(frozen=True)
class ScoredTransactions:
    """n test transactions in order of arrival, with their scores."""

    day: NDArray[np.int64]
    """Day number of each transaction."""
    card: NDArray[np.int64]
    """Card number of each transaction."""
    arrival: NDArray[np.int64]
    """ms."""
    amount: NDArray[np.float64]
    """In the currency of the file."""
    fraud: NDArray[np.bool_]
    score: NDArray[np.float64]


def card_precision(scored: ScoredTransactions, k: int = 100) -> NDArray[np.float64]:
    """Compute card precision at k for each test day (Fraud Detection Handbook, chapter 4).

    A day's cards are ranked by their highest score; a card is compromised if one of its transactions that day
    is fraud. The precision is the number of compromised cards among the first k, divided by k, even where a
    day has fewer cards. A compromised card among the first k is excluded from later days. Among cards with
    equal scores, the lower card number comes first.

    Returns:
        One value per day that has a transaction in `scored`, in order of the days.
    """
    caught = np.zeros(int(scored.card.max(initial=-1)) + 1, dtype=np.bool_)
    by_day = []
    for day in np.unique(scored.day):
        rows = np.flatnonzero((scored.day == day) & ~caught[scored.card])
        cards, card_of_row = np.unique(scored.card[rows], return_inverse=True)
        highest = np.full(cards.size, -np.inf)
        np.maximum.at(highest, card_of_row, scored.score[rows])
        compromised = np.zeros(cards.size, dtype=np.bool_)
        np.logical_or.at(compromised, card_of_row, scored.fraud[rows])
        top = np.argsort(-highest, kind="stable")[:k]
        hits = top[compromised[top]]
        caught[cards[hits]] = True
        by_day.append(hits.size / k)
    return np.array(by_day)


@dataclass(frozen=True)
class Detection:
    """Detection of compromised cards at a threshold, as if the first alert on a fraud blocked the card."""

    compromised_cards: int
    """Number of cards with fraud."""
    detected_cards: int
    """Number of compromised cards with an alert on one of their frauds."""
    hours_to_detection: float
    """Median over detected cards of the time from the first fraud to the first alert on a fraud; NaN if no
    card is detected."""
    frauds_before_detection: float
    """Mean over detected cards of the number of frauds before the first alert on a fraud; NaN if no card is
    detected."""
    fraud_amount: float
    """Sum of the amounts of all frauds."""
    saved_amount: float
    """Sum, over detected cards, of the amounts of the first alerted fraud and all later frauds."""

    @property
    def saved_share(self) -> float:
        """Saved share of the fraud amount; NaN without frauds."""
        return self.saved_amount / self.fraud_amount if self.fraud_amount > 0 else float("nan")


def detection(scored: ScoredTransactions, threshold: float) -> Detection:
    """Follow each compromised card until an alert on one of its frauds.

    Args:
        scored: in order of arrival.
        threshold: alerts are scores at or above it.
    """
    rows = np.flatnonzero(scored.fraud)
    rows = rows[np.argsort(scored.card[rows], kind="stable")]  # by card, then by arrival
    cards, starts = np.unique(scored.card[rows], return_index=True)
    hours, missed_frauds = [], []
    saved = 0.0
    for frauds in np.split(rows, starts[1:]) if cards.size else []:
        alerted = np.flatnonzero(scored.score[frauds] >= threshold)
        if not alerted.size:
            continue
        first = int(alerted[0])
        hours.append((scored.arrival[frauds[first]] - scored.arrival[frauds[0]]) / HOUR_MS)
        missed_frauds.append(first)
        saved += float(scored.amount[frauds[first:]].sum())
    nan = float("nan")
    return Detection(
        int(cards.size),
        len(hours),
        float(np.median(hours)) if hours else nan,
        float(np.mean(missed_frauds)) if missed_frauds else nan,
        float(scored.amount[rows].sum()),
        saved,
    )


@dataclass(frozen=True)
class ScenarioRecall:
    """Frauds of one scenario, and how many of them a threshold detects."""

    scenario: str
    frauds: int
    alerted: int
    amount: float
    """Sum of the frauds' amounts."""
    alerted_amount: float
    """Sum of the amounts of the alerted frauds."""


def by_scenario(
    scored: ScoredTransactions, scenario: NDArray[np.str_], threshold: float
) -> list[ScenarioRecall]:
    """Count the frauds and the detected frauds of each scenario, in order of the scenario names.

    Args:
        scenario: scenario of each transaction, used for frauds only, shape (n,).
        threshold: alerts are scores at or above it.
    """
    alerts = scored.score >= threshold
    recalls = []
    for name in np.unique(scenario[scored.fraud]):
        frauds = scored.fraud & (scenario == name)
        recalls.append(
            ScenarioRecall(
                str(name),
                int(frauds.sum()),
                int((frauds & alerts).sum()),
                float(scored.amount[frauds].sum()),
                float(scored.amount[frauds & alerts].sum()),
            )
        )
    return recalls

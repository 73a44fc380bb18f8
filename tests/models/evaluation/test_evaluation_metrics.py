"""Card precision equals that of the Fraud Detection Handbook's code, detection that of plain loops."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.catalogue import HOUR_MS
from models.evaluation.metrics import ScoredTransactions, by_scenario, card_precision, detection

pytestmark = pytest.mark.unit


def drawn(seed: int, rows: int, days: int, cards: int) -> ScoredTransactions:
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.integers(0, days * 24 * HOUR_MS, rows))
    # distinct scores: the handbook leaves the order of equal scores open
    score = rng.permutation(rows) / rows
    return ScoredTransactions(
        arrival // (24 * HOUR_MS),
        rng.integers(0, cards, rows),
        arrival,
        rng.integers(1, 500, rows).astype(np.float64),
        rng.random(rows) < 0.3,
        score,
    )


scored = st.builds(drawn, st.integers(0, 2**31), st.integers(1, 60), st.integers(1, 4), st.integers(1, 12))


def handbooks(scored: ScoredTransactions, k: int) -> list[float]:
    """The handbook's `card_precision_top_k` (chapter 4)."""
    predictions = pd.DataFrame(
        {"day": scored.day, "card": scored.card, "fraud": scored.fraud.astype(int), "score": scored.score}
    )
    detected: list[int] = []
    by_day = []
    for day in sorted(predictions["day"].unique()):
        of_day = predictions[predictions["day"] == day]
        of_day = of_day[~of_day["card"].isin(detected)]
        by_card = of_day.groupby("card").max().sort_values(by="score", ascending=False).reset_index()
        top = by_card.head(k)
        result = list(top[top["fraud"] == 1]["card"])
        by_day.append(len(result) / k)
        detected += result
    return by_day


@examples(30, thorough=2000)
@given(scored, st.integers(1, 8))
def test_card_precision_equals_the_handbooks(scored, k):
    assert card_precision(scored, k).tolist() == handbooks(scored, k)


def test_a_detected_card_is_excluded_on_later_days():
    # day    card  score  fraud
    # 0      0     .9     yes      first of day 0: caught
    # 1      0     .9     yes      dropped, so that
    # 1      1     .8     yes      this one comes first
    day = np.array([0, 1, 1])
    scored = ScoredTransactions(
        day,
        np.array([0, 0, 1]),
        day * 24 * HOUR_MS,
        np.ones(3),
        np.ones(3, np.bool_),
        np.array([0.9, 0.9, 0.8]),
    )
    assert card_precision(scored, 1).tolist() == [1, 1]


def test_perfect_scores_cannot_exceed_the_share_of_compromised_cards():
    scored = drawn(1, 50, 1, 12)
    fraud = scored.fraud & (scored.card < 4)
    best = replace(scored, fraud=fraud, score=fraud * 1.0)
    compromised = len(set(scored.card[fraud]))  # few of the 12 cards, so that the order decides
    for k in range(1, 9):
        assert card_precision(best, k).tolist() == [min(compromised, k) / k]


@examples(40)
@given(scored, st.floats(0, 1))
def test_detection_follows_each_card(scored, threshold):
    detected, hours, missed, saved, total = 0, [], [], 0.0, 0.0
    for card in set(scored.card[scored.fraud]):
        since, before, stopped = None, 0, False
        for row in range(len(scored.card)):
            if scored.card[row] != card or not scored.fraud[row]:
                continue
            total += scored.amount[row]
            since = scored.arrival[row] if since is None else since
            if not stopped and scored.score[row] >= threshold:
                stopped = True
                detected += 1
                hours.append((scored.arrival[row] - since) / HOUR_MS)
                missed.append(before)
            before += 1
            saved += scored.amount[row] if stopped else 0
    result = detection(scored, threshold)
    assert result.compromised_cards == len(set(scored.card[scored.fraud]))
    assert result.detected_cards == detected
    assert (result.fraud_amount, result.saved_amount) == (total, saved)
    assert result.hours_to_detection == pytest.approx(np.median(hours) if hours else np.nan, nan_ok=True)
    assert result.frauds_before_detection == pytest.approx(np.mean(missed) if missed else np.nan, nan_ok=True)
    assert result.saved_share == pytest.approx(saved / total if total else np.nan, nan_ok=True)


def test_recall_by_scenario():
    scored = ScoredTransactions(
        np.zeros(4, np.int64), np.arange(4), np.arange(4), np.array([10.0, 20, 30, 40]),
        np.array([True, True, True, False]), np.array([0.9, 0.1, 0.5, 0.9]),
    )  # fmt: skip
    result = by_scenario(scored, np.array(["2", "2", "1", "0"]), 0.5)
    assert [(recall.scenario, recall.frauds, recall.alerted) for recall in result] == [
        ("1", 1, 1),
        ("2", 2, 1),
    ]
    assert [(recall.amount, recall.alerted_amount) for recall in result] == [(30, 30), (30, 10)]

"""Records of a training run beside the model: curves, the model card, digests of data and code."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from models import curves
from models.card import Period, model_card
from models.thresholds import threshold_for_budget
from models.train import DAY_MS, evaluate
from models.training_record import code_version, training_set_digest

pytestmark = pytest.mark.unit


def holdout(rows: int = 5_000) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes (true: fraud), and scores correlated with them."""
    rng = np.random.default_rng(1)
    fraud = rng.random(rows) < 0.05
    return fraud, np.clip(0.3 * fraud + 0.5 * rng.random(rows), 0, 1)


def test_curves_have_the_areas_of_the_metrics() -> None:
    fraud, scores = holdout()
    result = curves.curves(fraud, scores)
    quality = evaluate(fraud, scores, 0.5)
    roc, by_recall = result["roc"], result["precision_recall"]
    assert np.trapezoid(roc["true_positive_rate"], roc["false_positive_rate"]) == pytest.approx(
        quality.auc_roc, abs=0.005
    )
    assert np.trapezoid(by_recall["precision"], by_recall["recall"]) == pytest.approx(
        quality.average_precision, abs=0.02
    )
    for points in (roc, by_recall):
        across = next(iter(points.values()))
        assert across == sorted(across)
        assert (across[0], across[-1]) == (0, 1)
        assert len(across) <= curves.POINTS


def test_page_of_curves_needs_no_other_file() -> None:
    text = curves.page(curves.curves(*holdout()))
    assert text.count("<svg") == 2
    for svg in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")
    assert not re.search(r'(?:href|src)="(?!#)', text)


def test_card_states_use_data_quality_and_limits() -> None:
    fraud, scores = holdout()
    quality = evaluate(fraud, scores, threshold_for_budget(scores, 0.01))
    arrival = np.arange(fraud.size) * 60_000
    period = Period.of(arrival, fraud)
    params = {"seed": 3, "training_set_sha256": "ab" * 32, "code_version": "1+c0de"}

    def card(fraud_weight: float = 1.0, delay_ms: int | None = None) -> str:
        return model_card(
            "card-fraud", 65, period, period, quality, params,
            fraud_weight=fraud_weight, merchant_delay_ms=delay_ms,
        )  # fmt: skip

    text = card()
    for heading in ("Intended use", "Data", "Training", "Quality on the hold-out", "Limits"):
        assert f"\n## {heading}\n" in text
    assert f"1970-01-01 00:00 to 1970-01-04 11:19 UTC, 5,000 transactions, {fraud.sum():,} frauds" in text
    assert f"| average_precision | {quality.average_precision:.4f} |" in text
    for name, value in params.items():
        assert f"| {name} | {value} |" in text
    assert "no probabilities" not in text
    assert "FRAUD_MERCHANT_FACTS" not in text
    assert "weight 20 in training" in card(fraud_weight=20.0)
    assert f"FRAUD_LABEL_DELAY_MS={DAY_MS}" in card(delay_ms=DAY_MS)
    assert len(text) < 5_000, "longer than the description of a model version may be"


def test_digest_changes_with_features_and_outcomes() -> None:
    x, y = np.ones((10, 2)), np.zeros(10, dtype=np.bool_)
    digest = training_set_digest(x, y)
    assert training_set_digest(x.copy(), y.copy()) == digest
    other = y.copy()
    other[3] = True
    assert len({digest, training_set_digest(x, other), training_set_digest(2 * x, y)}) == 3
    assert training_set_digest(x.reshape(2, 10), y) != digest


def test_the_code_version_has_release_and_digest_of_the_sources() -> None:
    release, _, code = code_version().partition("+")
    assert release
    assert len(code) == 12
    assert code_version() == code_version()

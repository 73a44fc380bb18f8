"""The training pipeline: features of a labelled history, training, evaluation, threshold, registration."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from feature_store.training.labels import FRAUD, LabelError, Labels, is_fraud
from models import curves, registry
from models.algorithms import Learner
from models.card import Period, model_card
from models.errors import ModelError
from models.feature_bins import bins_of
from models.rounding import rounded
from models.thresholds import threshold_for_budget, threshold_for_cost
from models.train import LABEL_DELAY_MS, Quality, evaluate, split_by_time
from models.training_record import TrainingRecord, code_version, training_set_digest

GOLDEN_ROWS = 200
"""Number of rows of the history whose scores every copy of the model must reproduce."""


@dataclass(frozen=True)
class TrainingResult:
    """A registered model and its quality."""

    ref: registry.ModelRef
    """Reference that a rollout pins."""
    quality: Quality
    """Quality on the hold-out; its threshold is the one to roll out with."""
    rows: int
    """Number of training transactions."""
    frauds: int
    """Number of frauds among the training transactions."""


def fit_and_register(
    transactions: pa.Table,
    tracking_uri: str,
    *,
    labels: pa.Table | None = None,
    profiles: pa.Table | None = None,
    merchant_labels: bool = False,
    label_delay_ms: int = LABEL_DELAY_MS,
    alert_budget: float = 0.005,
    alert_cost: float | None = None,
    learner: Learner | None = None,
    sources: Mapping[str, str] | None = None,
    name: str = registry.NAME,
) -> TrainingResult:
    """Train on point-in-time features of a history and register the model.

    The model is fitted to the transactions that precede the hold-out by at least the label delay (in a short
    history: a tenth of its time span), and evaluated on the hold-out. It is registered as it is, not fitted
    again to all transactions, so the threshold suits its scores.

    Args:
        transactions: the transaction contract's columns, rows in any order.
        labels: the chargeback contract's columns (transaction_id, card_id, label); a transaction without a
            label is genuine. Default: the transactions' own column `label`, 1 where fraud.
        profiles: the profile contract's columns.
        merchant_labels: train on merchant label features, too; a job that runs the model must keep merchant
            facts, with the same label delay.
        label_delay_ms: label delay: the gap between training and hold-out, and the time from a transaction to
            its label where labels have no `reported_at`. In merchant label features, a transaction not
            reported within this time counts as genuine.
        alert_budget: share of transactions that may become alerts by score.
        alert_cost: cost of investigating an alert, in the currency of the amounts; if given, the threshold is
            the one at which alerts and missed frauds cost least, and `alert_budget` is ignored.
        learner: algorithm and its options; its seed also draws the golden rows. Default: `Learner()`.
        sources: digests of the input files by name, for the record of the run.

    Raises:
        ModelError: the history holds no transactions that the stream decides, its training part has one class
            only, or `registry.register` fails.
    """
    from feature_store.merchants.catalogue import computed
    from feature_store.training import merchant_payments, training_set
    from feature_store.training.transaction_table import arrivals

    learner = learner or Learner()
    if merchant_labels:
        reported = merchant_payments.MerchantLabels.of(labels, label_delay_ms)
        x = merchant_payments.build(transactions, reported, profiles)
    else:
        x = training_set.build(transactions, profiles)
    y = outcomes(transactions, labels)
    # the split is by arrival: one transaction that is weeks late would stretch the span of event times
    arrival = arrivals(transactions)
    decided = ~np.isnan(x).all(axis=1)  # transactions that the stream does not decide have no features
    x, y, arrival = x[decided], y[decided], arrival[decided]
    if not len(x):
        raise ModelError("the history holds no transactions that the stream decides; give one that does")
    split = split_by_time(arrival, gap_ms=label_delay_ms)
    estimator = learner.fit(x[split.train], y[split.train])
    scores = rounded(estimator.predict_proba(x[split.holdout])[:, 1])  # as a Scorer's are
    outcome = y[split.holdout]
    if alert_cost is None:
        threshold = threshold_for_budget(scores, alert_budget)
    else:
        amount = np.asarray(transactions["amount"].cast(pa.float64()))[decided]
        threshold = threshold_for_cost(scores, outcome, amount[split.holdout], alert_cost)
    quality = evaluate(outcome, scores, threshold)
    golden = np.random.default_rng(learner.seed).choice(len(x), size=min(GOLDEN_ROWS, len(x)), replace=False)
    features = computed(merchants=merchant_labels)
    params = {
        **asdict(learner),
        "merchant_labels": merchant_labels,
        "label_delay_ms": label_delay_ms,
        **({"alert_budget": alert_budget} if alert_cost is None else {"alert_cost": alert_cost}),
        **(sources or {}),
        "training_set_sha256": training_set_digest(x[split.train], y[split.train]),
        "code_version": code_version(),
    }
    delay_ms = label_delay_ms if merchant_labels else None
    card = model_card(
        name,
        len(features),
        Period.of(arrival[split.train], y[split.train]),
        Period.of(arrival[split.holdout], outcome),
        quality,
        params,
        fraud_weight=learner.fraud_weight,
        merchant_delay_ms=delay_ms,
    )
    ref = registry.register(
        estimator,
        features,
        x[np.sort(golden)],
        _medians(x[split.train]),
        tracking_uri,
        record=TrainingRecord(params, quality.metrics(), _curves(outcome, scores), card),
        scores=scores,  # of rows that the model was not fitted to, like future rows
        bins=bins_of(x[split.train]),
        label_delay_ms=delay_ms,
        name=name,
    )
    return TrainingResult(ref, quality, int(split.train.sum()), int(y[split.train].sum()))


def outcomes(transactions: pa.Table, labels: pa.Table | None) -> np.ndarray:
    """Return the outcomes as bool[n], true where the transaction was fraud.

    Args:
        transactions: n rows with transaction_id and card_id, or with `label`.
        labels: as for `fit_and_register`; the last label of a transaction counts.

    Raises:
        LabelError: there are no labels, or none of them is of one of the transactions.
    """
    if labels is not None:
        index = Labels(labels)
        reported = index.of(transactions["card_id"], transactions["transaction_id"])
        index.matches.require_some()
        return np.asarray(reported == FRAUD)
    if "label" not in transactions.column_names:
        raise LabelError("the history has no column 'label'; give --labels")
    return is_fraud(transactions["label"])


def _curves(fraud: np.ndarray, scores: np.ndarray) -> dict[str, str]:
    """Return the files of the hold-out's curves, name -> content; empty if it has one class only."""
    if fraud.all() or not fraud.any():
        return {}
    content = curves.curves(fraud, scores)
    return {"curves.json": json.dumps(content), "curves.html": curves.page(content)}


def _medians(x: np.ndarray) -> np.ndarray:
    """Compute the median of each column's known values, float64[f]; 0 where none is known."""
    values = np.where(np.isnan(x).all(axis=0), 0.0, x)
    return np.asarray(np.nanmedian(values, axis=0))

"""Merchant facts of historical transactions; merchant label features from facts, for training and the job."""

import numpy as np
from numpy.typing import NDArray

from feature_store.merchants.catalogue import MARGIN_MS, MERCHANT_FEATURES, takes_effect
from feature_store.merchants.facts import LABEL_FACT, Facts, fold, hour_counts, merchant_hash
from feature_store.merchants.fraud_spans import FraudSpans
from feature_store.merchants.kernels import merchant_features


def facts_of(
    merchant: NDArray[np.uint64],
    arrival: NDArray[np.int64],
    spike: NDArray[np.bool_],
    fraud_spans: FraudSpans,
) -> Facts:
    """Build the merchant facts of n accepted transactions.

    Args:
        merchant: hash of each transaction's merchant, shape (n,).
        arrival: ms, shape (n,).
        spike: whether each transaction's ratio_robust was above SPIKE_RATIO, shape (n,).
    """
    frauds = np.empty(fraud_spans.row.size, dtype=LABEL_FACT)
    merchant = merchant_hash(merchant)
    for name, values in (("merchant", merchant), ("arrival", arrival), ("spike", spike)):
        frauds[name] = values[fraud_spans.row]
    frauds["known_from"] = takes_effect(fraud_spans.reported_at)
    frauds["known_until"] = takes_effect(fraud_spans.reversed_at)
    return fold(hour_counts(merchant, arrival), frauds)


def features_as_of(
    facts: Facts, merchant: NDArray[np.uint64], arrival: NDArray[np.int64], delay_ms: int
) -> NDArray[np.float64]:
    """Compute the merchant label features of n transactions, each as of its arrival.

    Args:
        facts: at least all that the features need; for each transaction, those that take effect after its
            arrival are ignored.
        merchant: hashes, shape (n,).
        arrival: ms, shape (n,).
        delay_ms: label delay, at least 0.

    Returns:
        Shape (n, len(MERCHANT_FEATURES)); NaN where unknown.
    """
    out = np.empty((merchant.size, len(MERCHANT_FEATURES)))
    hashes = merchant_hash(merchant)
    merchant_features(
        facts.hours.hour,
        facts.hours.count,
        *facts.hours.ranges(hashes),
        facts.frauds,
        *facts.frauds_of(hashes),
        np.ascontiguousarray(arrival),
        delay_ms + MARGIN_MS,
        out,
    )
    return out

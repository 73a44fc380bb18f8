"""The model card: intended use, data, training, quality and limits, in Markdown.

Mitchell et al., Model Cards for Model Reporting (2019).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.utc import moment_of
from models.train import Quality

_HEAD = """\
# {name}: fraud score of a card transaction

## Intended use
Ranks card transactions on arrival, for alerts that a fraud analyst reads. Runs in jobs of this project \
whose release computes the model's {features} features (tag `features` of the model version). Not intended \
for refusing a cardholder without a person's review, for credit decisions, or for payments other than by card.
"""
_LIMITS = """
## Limits
- Kinds of fraud that the data does not show are found by chance only. Watch `fraud_feature_psi` and the \
precision of alerts, and train again when they get worse.
- A transaction without a label counts as genuine, so unreported fraud is learnt as genuine.
- The threshold was chosen on the hold-out, so precision and recall there are slightly optimistic. The \
hold-out is one period of time: other weeks differ; `fraud models evaluate` shows by how much.
- No feature describes a person, but some compare the country of a payment with the card's home country: \
cards of people who live in two countries may get more alerts. Check the precision of alerts by country.
"""
_WEIGHTED = """\
- A fraud had the weight {weight:g} in training: scores rank transactions, but are no probabilities.
"""
_MERCHANTS = """\
- Merchant label features need a job with FRAUD_MERCHANT_FACTS=true and FRAUD_LABEL_DELAY_MS={delay_ms}, and \
labels that arrive as late as those of the training data.
"""


@dataclass(frozen=True)
class Period:
    """Transactions of one period of time."""

    first_ms: int
    """Arrival of the first transaction, ms since 1970-01-01 UTC."""
    last_ms: int
    rows: int
    frauds: int

    @staticmethod
    def of(arrival: NDArray[np.int64], fraud: NDArray[np.bool_]) -> "Period":
        """Describe n transactions, at least one.

        Args:
            arrival: ms, shape (n,).
            fraud: shape (n,).
        """
        return Period(int(arrival.min()), int(arrival.max()), arrival.size, int(fraud.sum()))

    def __str__(self) -> str:
        first, last = (moment_of(ms) for ms in (self.first_ms, self.last_ms))
        span = f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
        return f"{span}, {self.rows:,} transactions, {self.frauds:,} frauds"


def model_card(
    name: str,
    features: int,
    train: Period,
    holdout: Period,
    quality: Quality,
    params: Mapping[str, Any],
    *,
    fraud_weight: float,
    merchant_delay_ms: int | None,
) -> str:
    """Return the model card as Markdown.

    Args:
        params: parameters of the run, including the digests of data and code.
        merchant_delay_ms: label delay of the merchant label features; None without them.
    """
    data = {"trained on": str(train), "hold-out": str(holdout)}
    metrics = {metric: f"{value:.4f}" for metric, value in quality.metrics().items()}
    limits = _LIMITS
    if fraud_weight != 1.0:
        limits += _WEIGHTED.format(weight=fraud_weight)
    if merchant_delay_ms is not None:
        limits += _MERCHANTS.format(delay_ms=merchant_delay_ms)
    return "\n".join(
        [
            _HEAD.format(name=name, features=features),
            f"## Data\n{_table(data)}",
            f"## Training\n{_table(params)}",
            f"## Quality on the hold-out\n{_table(metrics)}",
            limits.lstrip("\n"),
        ]
    )


def _table(values: Mapping[str, Any]) -> str:
    rows = "".join(f"| {key} | {value} |\n" for key, value in values.items())
    return f"| | |\n|---|---|\n{rows}"

"""A model that raises: it has never seen an unknown value, and a card without a profile has one."""

from functools import cache

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from feature_store.catalogue import COLUMN, IDENTITIES
from models import registry
from models.registry import ModelRef

USED = ("amount", "risk_tier")
"""The second is unknown of a card without a profile."""
ROWS = 400


@cache
def failing_model(tracking_uri: str) -> ModelRef:
    """Registers the model, once a process; it alerts from amounts of about 30 on.

    Raises:
        ModelError: it cannot be registered.
    """
    rows = np.random.default_rng(0).exponential(10.0, (ROWS, len(USED)))
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, rows[:, 0] > 30)
    features = tuple(IDENTITIES[COLUMN[name]] for name in USED)
    return registry.register(fitted, features, rows[:50], np.median(rows, axis=0), tracking_uri)

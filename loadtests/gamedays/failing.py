"""A model that raises on unknown values (NaN), and so for cards without a profile."""

import uuid
from functools import cache

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from feature_store.catalogue import COLUMN, IDENTITIES
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.senders import encoded, transactions
from models import registry
from models.registry import ModelRef

USED = ("amount", "risk_tier")
"""Features of the model; the second is unknown for a card without a profile."""
ROWS = 400
EACH = 3
"""Transactions of cards without a profile for every 20 of other cards."""


@cache
def failing_model(tracking_uri: str) -> ModelRef:
    """Register the model, once per process; it is trained to alert on amounts above 30.

    Raises:
        ModelError: it cannot be registered.
    """
    rows = np.random.default_rng(0).exponential(10.0, (ROWS, len(USED)))
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, rows[:, 0] > 30)
    features = tuple(IDENTITIES[COLUMN[name]] for name in USED)
    return registry.register(fitted, features, rows[:50], np.median(rows, axis=0), tracking_uri)


def send_strangers(scene: Scene) -> None:
    """Start to send transactions of cards without a profile, until `scene.traffic.also` is reset."""

    def strangers() -> None:
        records = transactions(scene.installed.world, EACH)
        scene.installed.send_raw(
            encoded([record | {"card_id": f"card-{uuid.uuid4().hex}"} for record in records])
        )

    scene.traffic.also = strangers

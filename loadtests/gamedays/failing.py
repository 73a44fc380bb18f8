"""A model that raises: it has never seen an unknown value, and a card without a profile has one."""

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
"""The second is unknown of a card without a profile."""
ROWS = 400
EACH = 3
"""Transactions of strangers for each 20 of the others."""


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


def send_strangers(scene: Scene) -> None:
    """Let transactions of cards flow that no profile is known of; `scene.traffic.also` ends it."""

    def strangers() -> None:
        made = transactions(scene.installed.world, EACH)
        scene.installed.send_raw(encoded([one | {"card_id": f"card-{uuid.uuid4().hex}"} for one in made]))

    scene.traffic.also = strangers

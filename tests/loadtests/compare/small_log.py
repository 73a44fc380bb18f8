"""A small log with its expected decisions: features by the kernels, scores by the compiled trees."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingClassifier

from feature_store.catalogue import COLUMN, NAMES
from feature_store.training.training_set import ACCEPTED, PointInTime
from feature_store.training.transaction_table import to_records
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.profiles import profiles
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from models.policy import Policy
from models.scoring import Scorer
from models.trees import compile_trees

EVENTS = 4_000
POLICY = Policy(threshold=0.2, max_count_5m=6)
WORLD = World.create(seed=5, cards=60, merchants=40)


@dataclass(frozen=True)
class SmallLog:
    """Transactions, profiles and the expected decisions, row by row."""

    scorer: Scorer
    lines: list[dict[str, Any]]
    """{"arrival": ms, "transaction": {...}, "profile": Debezium's envelope or None}."""
    accepted: np.ndarray
    """Whether each transaction is accepted, bool[n]; the others are repetitions."""
    features: np.ndarray
    """Features, float64[n, f]."""
    scores: np.ndarray
    """Scores, float64[n]."""
    alerts: np.ndarray
    """Whether each transaction is an alert, bool[n]."""


def small_log(rate: float) -> SmallLog:
    """Transactions of 60 cards, some out of order or repeated; `rate` of them per second of event time."""
    mess = Disturbances(late=0, out_of_order=0.1, future=0, malformed=0, duplicated=0.02)
    stream = Stream(WORLD, rate, 1_790_000_000_000, disturbances=mess)
    batches = list(stream.blocks(events=EVENTS))
    table = pa.concat_tables(batch.table for batch in batches)
    known = profiles(WORLD, np.flatnonzero(WORLD.cards.has_profile))
    # every second repetition comes in another currency, so it is none
    repeated = np.flatnonzero(PointInTime(known).features(to_records(table)).outcome != ACCEPTED)[::2]
    currencies = table["currency"].to_pylist()
    for row in repeated.tolist():
        currencies[row] = "JPY"
    table = table.set_column(table.column_names.index("currency"), "currency", pa.array(currencies))
    decided = PointInTime(known).features(to_records(table))
    accepted = decided.outcome == ACCEPTED
    assert accepted[repeated].all()
    assert not accepted.all()
    model = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=8, min_samples_leaf=5, random_state=0)
    model.fit(decided.features[accepted], table["label"].to_numpy()[accepted])
    scorer = Scorer("card-fraud", "1", "0" * 64, tuple(NAMES), compile_trees(model))
    scores = scorer.score(decided.features)
    row_of = {row["card_id"]: row for row in known.to_pylist()}
    blocked = {card for card, row in row_of.items() if row["status"] != "active"}
    cards = table["card_id"].to_pylist()
    busy = np.maximum(decided.features[:, COLUMN["count_5m"]], decided.features[:, COLUMN["arrivals_5m"]])
    alerts = (
        (scores >= POLICY.threshold)
        | (busy > POLICY.max_count_5m)
        | np.array([card in blocked for card in cards])
    )
    values = [value for batch in batches for value in batch.encode()[1]]
    lines = [
        {
            "arrival": arrival,
            "transaction": {**orjson.loads(value or b""), "currency": currency},
            "profile": {"op": "r", "after": row_of[card]} if card in row_of else None,
        }
        for arrival, value, card, currency in zip(
            table["arrival_time"].to_pylist(), values, cards, currencies, strict=True
        )
    ]
    return SmallLog(scorer, lines, accepted, decided.features, scores, alerts & accepted)


def require_equal(log: SmallLog, found: list[dict[str, Any] | None]) -> None:
    """Check that a port of the job to another engine decided like the job.

    Args:
        log: the log with the expected decisions.
        found: the port's decision on each row, with its score, alert and features; None for a repetition.
    """
    assert [row is not None for row in found] == log.accepted.tolist()
    accepted = np.flatnonzero(log.accepted)
    rows = [row for row in found if row is not None]
    for name in log.scorer.feature_names:
        values = [row["features"][name] for row in rows]
        ported = np.array([np.nan if value is None else value for value in values], dtype=float)
        np.testing.assert_allclose(ported, log.features[accepted, COLUMN[name]], rtol=1e-9, err_msg=name)
    np.testing.assert_allclose([row["score"] for row in rows], log.scores[accepted], rtol=0, atol=1.5e-9)
    assert [row["alert"] for row in rows] == log.alerts[accepted].tolist()

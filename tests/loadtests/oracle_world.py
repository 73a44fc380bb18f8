"""A log for the oracle: records in one partition, and models that score by the amount alone."""

import json
from typing import Any

import numpy as np
from harness.log_world import DAY, MINUTE, START, LogWorld

from feature_store.catalogue import IDENTITIES, NAMES
from loadtests.oracle import AcceptanceRules, ExpectedOutcome, Oracle, ProfileLog, RolloutLog, Scorer
from models.percentiles import quantiles
from streaming_job.log.losses import NOTHING_LOST


class AmountModel:
    """A model whose score of a transaction is its amount in thousands."""

    name = "card-fraud"
    version = "1"
    digest = "d" * 64
    feature_names = NAMES
    quantiles = quantiles(np.linspace(0, 1, 1_000))

    def score(self, x: np.ndarray) -> np.ndarray:
        return np.minimum(x[:, 0] / 1000, 1.0)

    def explain(self, x: np.ndarray) -> np.ndarray:
        raised = np.zeros(x.shape)
        raised[:, 0] = x[:, 0]
        raised[:, 1] = -1.0
        return raised


class DoubleModel(AmountModel):
    """A model with twice the scores."""

    def score(self, x: np.ndarray) -> np.ndarray:
        return np.minimum(x[:, 0] / 500, 1.0)


class ChokingModel(DoubleModel):
    """A model that raises for amounts ending in 99 cents, and returns NaN for those ending in 98."""

    def score(self, x: np.ndarray) -> np.ndarray:
        cents = np.round(x[:, 0] * 100) % 100
        if (cents == 99).any():
            raise ValueError("no")
        return np.where(cents == 98, np.nan, super().score(x))


MODELS = {"1": AmountModel(), "2": DoubleModel(), "3": ChokingModel()}


def load(scorer: Scorer) -> AmountModel:
    """The model of a scorer, by its version."""
    return MODELS[scorer.model.version]


def model(version: str = "1") -> dict[str, Any]:
    """Reference of a model, as in a rollout."""
    return {
        "name": "card-fraud",
        "version": version,
        "uri": f"models:/card-fraud/{version}",
        "digest": "0def"[int(version)] * 64,
        "features": list(IDENTITIES),
    }


def challenger(name: str = "b", version: str = "2", *, role: str = "canary", **policy: Any) -> dict[str, Any]:
    """A challenger of a proposal."""
    return {
        "name": name,
        "role": role,
        "share_bp": 1_000,
        "model": model(version),
        "policy": {"threshold": 0.5, "max_count_5m": 10, **policy},
    }


class World(LogWorld):
    """A log, which the oracle judges."""

    def __init__(
        self,
        *,
        threshold: float = 0.5,
        max_count_5m: int = 10,
        partitions: int = 1,
        partitioner: str = "murmur2",
    ) -> None:
        super().__init__()
        self.losses = NOTHING_LOST
        """See `Oracle`."""
        self._rules = AcceptanceRules(7 * DAY, 5 * MINUTE, partitions, partitioner)
        self.rollout("r1", arrival=-START, threshold=threshold, max_count_5m=max_count_5m)

    def rollout(self, rollout_id: str, *, arrival: int, threshold: float, max_count_5m: int = 10) -> None:
        only = challenger("challenger", "1", threshold=threshold, max_count_5m=max_count_5m)
        self.propose(rollout_id, only, arrival=arrival, champion=None, any_champion=True)
        self.event("promoted", rollout_id, 2, arrival=arrival, challenger="challenger")

    def event(self, kind: str, rollout_id: str, seq: int, *, arrival: int = 0, **fields: Any) -> None:
        """Append a rollout event."""
        value = {
            "schema_version": 2,
            "type": kind,
            "rollout_id": rollout_id,
            "seq": seq,
            "expected_seq": seq - 1,
            "idempotency_key": f"{kind}-{seq}",
            "actor": "test",
            "approved_by": None,
            "reason": "",
            "created_at": START,
            **fields,
        }
        self.raw_rollout(json.dumps(value).encode(), arrival)

    def propose(self, rollout_id: str, *challengers: dict[str, Any], arrival: int = 0, **fields: Any) -> None:
        """Append a proposal of challengers; by default the champion is model 1."""
        given = {"champion": model(), "guards": None, "line": "card-fraud", **fields}
        self.event("proposed", rollout_id, 1, arrival=arrival, challengers=list(challengers), **given)

    def outcomes(self) -> list[ExpectedOutcome]:
        profiles, rollouts = ProfileLog(), RolloutLog()
        profiles.read(self.profiles)
        rollouts.read(self.rollouts)
        self.oracle = Oracle(profiles, rollouts, load, self._rules)
        self.oracle.lost(self.losses.profiles_before, self.losses.windows_before)
        return list(self.oracle.judge(self.transactions))

    def alerts(self) -> list[dict[str, Any]]:
        return [outcome.alert for outcome in self.outcomes() if outcome.alert]

    def feature(self, name: str) -> list[float | None]:
        """Value of a feature for every transaction that is an alert, in log order."""
        return [alert["features"][name] for alert in self.alerts()]

    def shadows(self) -> list[dict[str, Any]]:
        """All shadow alerts, in log order."""
        return [
            record
            for outcome in self.outcomes()
            for topic, record in outcome.records
            if topic == "shadow_alerts"
        ]

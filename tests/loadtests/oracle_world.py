"""A small world for the oracle: records in one partition, and models that score by the amount alone."""

import json
from typing import Any

import numpy as np

from feature_store.catalogue import IDENTITIES, NAMES
from loadtests.oracle import AcceptanceRules, ExpectedOutcome, Oracle, ProfileLog, Record, RolloutLog, Scorer
from models.percentiles import quantiles

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
START = 1_780_000_200_000
"""2026-05-28 20:30:00 UTC, a Thursday evening."""


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


class World:
    """Collects the records of a log, then runs the oracle."""

    def __init__(
        self,
        *,
        threshold: float = 0.5,
        max_count_5m: int = 10,
        partitions: int = 1,
        partitioner: str = "murmur2",
    ) -> None:
        self._rules = AcceptanceRules(7 * DAY, 5 * MINUTE, partitions, partitioner)
        self.transactions: list[Record] = []
        self.profiles: list[Record] = []
        self.rollouts: list[Record] = []
        self.rollout("r1", arrival=0, threshold=threshold, max_count_5m=max_count_5m)

    def rollout(self, rollout_id: str, *, arrival: int, threshold: float, max_count_5m: int = 10) -> None:
        only = challenger("challenger", "1", threshold=threshold, max_count_5m=max_count_5m)
        self.propose(rollout_id, only, arrival=arrival, champion=None, any_champion=True)
        self.event("promoted", rollout_id, 2, arrival=arrival, challenger="challenger")

    def raw_rollout(self, value: dict[str, Any], arrival: int) -> None:
        text = json.dumps(value).encode()
        self.rollouts.append(Record("model-rollouts", 0, len(self.rollouts), arrival, b"r", text))

    def event(self, kind: str, rollout_id: str, seq: int, *, arrival: int = START, **fields: Any) -> None:
        """Append a rollout event; `arrival` in ms since 1970."""
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
        self.raw_rollout(value, arrival)

    def propose(
        self, rollout_id: str, *challengers: dict[str, Any], arrival: int = START, **fields: Any
    ) -> None:
        """Append a proposal of challengers; by default the champion is model 1."""
        given = {"champion": model(), "guards": None, "line": "card-fraud", **fields}
        self.event("proposed", rollout_id, 1, arrival=arrival, challengers=list(challengers), **given)

    def profile(
        self, op: str, *, arrival: int, card: str = "c", key: bytes | None = None, **row: Any
    ) -> None:
        full = {
            "card_id": card,
            "status": "active",
            "home_country": "FR",
            "currency": "EUR",
            "credit_limit": 1000.0,
            "risk_tier": 0,
            "opened_on": 20_000,
            **row,
        }
        value = None
        if op != "tombstone":
            value = json.dumps({"op": op, "before" if op == "d" else "after": full}).encode()
        offset = len(self.profiles)
        self.profiles.append(
            Record(
                "bank.public.card_profiles",
                0,
                offset,
                arrival,
                key or json.dumps({"card_id": card}).encode(),
                value,
            )
        )

    def raw(self, value: bytes | None, *, arrival: int = START) -> None:
        self.transactions.append(Record("transactions", 0, len(self.transactions), arrival, b"c", value))

    def tx(self, time: int, amount: float = 10.0, *, arrival: int | None = None, **fields: Any) -> None:
        """Append a transaction; `time` and `arrival` (default: `time`) in ms from START."""
        value = {
            "transaction_id": f"t{len(self.transactions)}",
            "card_id": "c",
            "merchant_id": "m",
            "amount": amount,
            "currency": "EUR",
            "country": "FR",
            "event_time": START + time,
            **fields,
        }
        self.raw(json.dumps(value).encode(), arrival=START + (time if arrival is None else arrival))

    def outcomes(self) -> list[ExpectedOutcome]:
        profiles, rollouts = ProfileLog(), RolloutLog()
        profiles.read(self.profiles)
        rollouts.read(self.rollouts)
        self.oracle = Oracle(profiles, rollouts, load, self._rules)
        return list(self.oracle.judge(self.transactions))

    def alerts(self) -> list[dict[str, Any]]:
        return [outcome.alert for outcome in self.outcomes() if outcome.alert]

    def feature(self, name: str) -> list[float | None]:
        """Value of a feature for every transaction that is an alert, in log order."""
        return [alert["features"][name] for alert in self.alerts()]

    def shadows(self) -> list[dict[str, Any]]:
        """All shadow alerts, in log order."""
        return [shadow for outcome in self.outcomes() for shadow in outcome.shadows]

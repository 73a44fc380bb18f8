"""The oracle: from the logs alone, which transaction had to become what.

Naive on purpose: whole histories in plain Python, one transaction after another. What it shares with the
job are the reasons of the contract, the model and the policy; neither decoding nor features nor state.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from feature_store.catalogue import NAMES
from loadtests.oracle.card import Card, Profile, View
from loadtests.oracle.decode import RefusedError, read_transaction
from loadtests.oracle.features import compute
from loadtests.oracle.records import UNITS, Kind, Outcome, Record, Rules, Transaction
from loadtests.oracle.scoring import Model, Score, known, reasons, scores
from loadtests.oracle.tables import BEGINNING, ProfileLog, Rollout, RolloutLog, dead_letter
from models.policy import Counts, alert_id, decide

CHUNK = 10_000
"""Transactions that are scored together."""


class _Pending(NamedTuple):
    """An accepted transaction with everything that its decision needs but the score."""

    topic: str
    tx: Transaction
    card: Card
    profile: Profile | None
    status: str | None
    rollout: Rollout
    features: dict[str, float]
    row: list[float]
    late: bool
    conflicting: bool


class Oracle:
    """Judges transactions in log order, against tables that are read first.

    Args:
        profiles: the profile topic, folded.
        rollouts: the rollout topic, folded; must hold at least one rollout.
        load: gives the model of a rollout.
        rules: which transactions are accepted.
    """

    def __init__(
        self,
        profiles: ProfileLog,
        rollouts: RolloutLog,
        load: Callable[[Rollout], Model],
        rules: Rules,
    ) -> None:
        self._profiles = profiles
        self._rollouts = rollouts
        self._load = load
        self._models: dict[str, Model] = {}
        self._rules = rules
        self._cards: dict[str, Card] = {}

    def judge(self, records: Iterable[Record]) -> Iterator[Outcome]:
        """One outcome for each record of the transactions topic, in the same order.

        Args:
            records: of each partition in the order of offsets; partitions may be mixed.
        """
        chunk: list[_Pending | Outcome] = []
        for record in records:
            chunk.append(self._features(record))
            if len(chunk) == CHUNK:
                yield from self._decide(chunk)
                chunk = []
        yield from self._decide(chunk)

    def _features(self, record: Record) -> "_Pending | Outcome":
        try:
            tx = read_transaction(record, self._rules)
        except RefusedError as refused:
            return dead_letter(record, refused.reason)
        card = self._cards.get(tx.card_id)
        if card is None or card.is_forgotten(
            tx.arrival, self._rules.allowed_lateness_ms, partial(self._profiles.had_version, tx.card_id)
        ):
            card = self._cards[tx.card_id] = Card()
        if card.has(tx):
            return Outcome(record.topic, record.partition, record.offset, Kind.DUPLICATE)
        # of a card that has been ahead, nothing is looked up behind that
        seen_at = max(tx.arrival, card.arrival)
        profile = self._profiles.in_force(tx.card_id, seen_at)
        status = self._profiles.status(tx.card_id, seen_at)
        rollout = self._rollouts.in_force(tx.arrival)
        view = View(tx, card, profile)
        found = compute(view)
        row = [found[name] for name in self._model(rollout).feature_names]
        return _Pending(
            record.topic, tx, card, profile, status, rollout, found, row, view.late, view.conflicting,
        )  # fmt: skip

    def _model(self, rollout: Rollout) -> Model:
        model = self._models.get(rollout.rollout_id)
        if model is None:
            model = self._models[rollout.rollout_id] = self._load(rollout)
        return model

    def _decide(self, chunk: "list[_Pending | Outcome]") -> Iterator[Outcome]:
        scores = self._scores([item for item in chunk if isinstance(item, _Pending)])
        for item in chunk:
            yield item if isinstance(item, Outcome) else self._decision(item, next(scores))

    def _scores(self, pending: list[_Pending]) -> Iterator[Score]:
        """Scores in the order of `pending`, one call for each run of rows of the same rollout."""
        for _, rows in groupby(pending, key=lambda item: item.rollout.rollout_id):
            run = list(rows)
            yield from scores(self._model(run[0].rollout), [item.row for item in run])

    def _decision(self, item: _Pending, score: Score) -> Outcome:
        tx, card, rollout = item.tx, item.card, item.rollout
        decision = decide(
            rollout.policy,
            score.value,
            Counts(**{name: int(item.features[name]) for name in Counts.__dataclass_fields__}),
            item.status,
            item.profile is not None,
            card.suspicious_count(tx.arrival)["day"],
        )
        if decision is None:
            return Outcome(item.topic, tx.partition, tx.offset, Kind.PASSED)
        card.alerts.append(tx.arrival)
        model = self._model(rollout)
        told, unexplained = reasons(model, item.row, score)
        alert: dict[str, Any] = {
            "schema_version": 1,
            "alert_id": alert_id(
                tx.card_id,
                tx.transaction_id,
                event_time=tx.event_time,
                units=tx.units,
                merchant_id=tx.merchant_id,
                country=tx.country,
            ),
            "card_id": tx.card_id,
            "transaction_id": tx.transaction_id,
            "merchant_id": tx.merchant_id,
            "amount": tx.units / UNITS,
            "currency": tx.currency,
            "country": tx.country,
            "event_time": tx.event_time,
            "arrival_time": tx.arrival,
            "decision": decision.decision,
            "rules": list(decision.rules),
            "score": score.value,
            "model_failure": score.failure or unexplained,
            "threshold": rollout.policy.threshold,
            "reasons": told,
            "features": {name: known(item.features[name]) for name in NAMES},
            "model": {"name": model.name, "version": model.version, "digest": model.digest},
            "rollout_id": rollout.rollout_id,
            "profile": _version(item.profile, tx.arrival),
            "suspicious_count": card.suspicious_count(tx.arrival),
            "late": item.late,
            "conflicting_repetition": item.conflicting,
            "source": {"topic": item.topic, "partition": tx.partition, "offset": tx.offset},
        }
        looked_at = frozenset(model.feature_names)
        return Outcome(item.topic, tx.partition, tx.offset, Kind.ALERT, alert=alert, looked_at=looked_at)


def _version(profile: Profile | None, seen_at: int) -> dict[str, Any] | None:
    if profile is None:
        return None
    return {
        "status": profile.status,
        "partition": profile.partition,
        "offset": profile.offset,
        "arrival_time": profile.known_from,
        "age_ms": None if profile.known_from == BEGINNING else max(seen_at - profile.known_from, 0),
    }

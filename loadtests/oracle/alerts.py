"""Alerts and shadow alerts as the contracts define them."""

from typing import Any, NamedTuple

from feature_store.merchants.catalogue import ALL_NAMES
from loadtests.oracle.card import Card, Profile
from loadtests.oracle.membership import bucket
from loadtests.oracle.records import UNITS, Transaction
from loadtests.oracle.rollouts import Plan, Scorer
from loadtests.oracle.scoring import Score, json_number
from loadtests.oracle.tables import BEGINNING
from loadtests.oracle.trials import Run, Vote
from models.policy import Decision, alert_id, decide
from models.rules.rule import Known


class Pending(NamedTuple):
    """An accepted transaction with everything that its decision needs, except the scores."""

    topic: str
    tx: Transaction
    card: Card
    profile: Profile | None
    profile_unknown: bool
    history_cut: bool
    status: str | None
    plan: Plan
    run: Run
    """The partition's consecutive transactions under one trial, or under none (`trials.Run`)."""
    features: dict[str, float]
    late: bool
    conflicting: bool

    @property
    def source(self) -> dict[str, Any]:
        """Topic, partition and offset of the transaction."""
        return {"topic": self.topic, "partition": self.tx.partition, "offset": self.tx.offset}

    @property
    def alert_id(self) -> str:
        """The id that every alert of the transaction has."""
        tx = self.tx
        return alert_id(
            tx.card_id,
            tx.transaction_id,
            event_time=tx.event_time,
            units=tx.units,
            merchant_id=tx.merchant_id,
            country=tx.country,
            currency=tx.currency,
        )


class ModelDecision(NamedTuple):
    """Score and decision of one model and its policy on a transaction."""

    scorer: Scorer
    score: Score
    decision: Decision | None
    """None: no alert."""

    def trial_vote(self, decides: bool = False) -> Vote:
        """Return the part of the verdict that trials count."""
        return Vote(self.score.value, self.decision is not None, decides)

    @property
    def rules(self) -> list[str]:
        """The rules that fired."""
        return [] if self.decision is None else list(self.decision.rules)


def verdict(item: Pending, scorer: Scorer, score: Score) -> ModelDecision:
    """Apply a scorer's policy, given the card's alerts so far."""
    has_profile = item.profile is not None or item.profile_unknown
    known = Known(score.value, item.features, item.status, has_profile)
    decision = decide(scorer.policy, known, item.card.suspicious_count(item.tx.arrival)["day"])
    return ModelDecision(scorer, score, decision)


def membership(card_id: str, plan: Plan) -> dict[str, Any] | None:
    """Return the alert's field `membership` for a card; None without a canary."""
    if not plan.canary:
        return None
    card_bucket = bucket(card_id, plan.salt)
    return {
        "rollout_id": plan.trial,
        "challenger": plan.canary,
        "bucket": card_bucket,
        "share_bp": plan.share_bp,
        "is_member": card_bucket < plan.share_bp,
    }


def alert(
    item: Pending,
    decider: ModelDecision,
    top_features: list[dict[str, Any]],
    unexplained: str | None,
    challenger_failure: str | None,
) -> dict[str, Any]:
    """Build a transaction's alert; `Card.alerts` must already include its arrival.

    Args:
        top_features: the features that raised the score most, as the alert's `reasons`.
        unexplained: failure code if the model could not explain its score, else None.
        challenger_failure: failure code of the canary that should have decided, else None.
    """
    assert decider.decision is not None
    tx, scorer, score = item.tx, decider.scorer, decider.score
    return {
        "schema_version": 1,
        "alert_id": item.alert_id,
        "card_id": tx.card_id,
        "transaction_id": tx.transaction_id,
        "merchant_id": tx.merchant_id,
        "amount": tx.units / UNITS,
        "currency": tx.currency,
        "country": tx.country,
        "event_time": tx.event_time,
        "arrival_time": tx.arrival,
        "decision": decider.decision.decision,
        "rules": decider.rules,
        "score": score.value,
        "model_failure": score.failure or unexplained,
        "threshold": scorer.policy.threshold,
        "reasons": top_features,
        "features": {name: json_number(item.features[name]) for name in ALL_NAMES if name in item.features},
        "model": _named(scorer),
        "rollout_id": scorer.rollout_id,
        "rollout_seq": scorer.seq,
        "role": "canary" if scorer.challenger else "champion",
        "membership": membership(tx.card_id, item.plan),
        "policy": scorer.policy.digest(),
        "challenger_failure": challenger_failure,
        "profile": _version(item.profile, tx.arrival),
        "profile_unknown": item.profile_unknown,
        "history_cut": item.history_cut,
        "suspicious_count": item.card.suspicious_count(tx.arrival),
        "late": item.late,
        "conflicting_repetition": item.conflicting,
        "source": item.source,
    }


def shadow_alert(item: Pending, challenger: ModelDecision, champion: ModelDecision) -> dict[str, Any]:
    """Build the shadow alert of a challenger; made if either it or the champion alerts, but not both."""
    scorer = challenger.scorer
    return {
        "schema_version": 1,
        "alert_id": item.alert_id,
        "card_id": item.tx.card_id,
        "transaction_id": item.tx.transaction_id,
        "arrival_time": item.tx.arrival,
        "rollout_id": scorer.rollout_id,
        "seq": scorer.seq,
        "challenger": scorer.challenger,
        "role": "canary" if scorer.challenger == item.plan.canary else "shadow",
        "model": _named(scorer),
        "score": challenger.score.value,
        "threshold": scorer.policy.threshold,
        "alerts": challenger.decision is not None,
        "rules": challenger.rules,
        "champion": {
            "score": champion.score.value,
            "alerts": champion.decision is not None,
            "rules": champion.rules,
        },
        "source": item.source,
    }


def _named(scorer: Scorer) -> dict[str, str]:
    model = scorer.model
    return {"name": model.name, "version": model.version, "digest": model.digest}


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

"""Checks of a change: challengers, features, label delay, guards and their data.

`model_registry` has the other checks of a model, and `drawing` those that need the rollouts' history.
"""

from collections.abc import Mapping
from typing import Any

from feature_store.catalogue import DAY_MS, lacking
from feature_store.merchants import catalogue as merchants
from models.guards import policy
from models.guards.rules import ScoreDrift
from models.registry import ModelRef
from models.rollouts.events import CANARY
from models.rollouts.state import Line, Trial
from models.scoring import Scorer
from service.rollouts.assessment import Assessment
from service.rollouts.errors import RefusedError, StaleError
from service.rollouts.model_registry import ModelRegistry, refusing
from service.rollouts.requests import Proposal
from streaming_job.contracts import Reason

MOST_CHALLENGERS = 4


def require_sound(proposal: Proposal) -> None:
    """Raise RefusedError unless the id and the challengers of a proposal are valid."""
    if "/" in proposal.rollout_id or proposal.rollout_id in (".", ".."):
        # clients of the API would take it for part of the path
        raise RefusedError(
            "contract",
            f"{proposal.rollout_id} is no id of a rollout: give one without slashes, of more than dots",
        )
    names = [challenger.name for challenger in proposal.challengers]
    if not 1 <= len(names) <= MOST_CHALLENGERS or len(set(names)) < len(names):
        raise RefusedError(
            "challenger",
            f"{len(names)} challengers: give 1 to {MOST_CHALLENGERS}, each with a name of its own",
        )
    if sum(challenger.role == CANARY for challenger in proposal.challengers) > 1:
        raise RefusedError("challenger", "more than one challenger has the role canary; keep one of them")
    if proposal.at_once and len(names) > 1:
        raise RefusedError(
            "challenger", "exactly one model can be promoted without a trial; keep one challenger"
        )


def require_features(ref: ModelRef, computed: list[str] | None, job_id: str) -> None:
    """Raise RefusedError unless every feature of a model is computed.

    Args:
        computed: features that the running job computes; None if no job runs: this release's are assumed.
    """
    # whether a stopped job keeps merchant facts is not known here: the job itself judges the model later
    known = merchants.computed(merchants=True) if computed is None else computed
    if missing := lacking(ref.features, known):
        release = "this release" if computed is None else f"the release of the running job {job_id}"
        instead = "start a release of the job that does"
        if merchants.are_merchants(missing):
            release = f"the running job {job_id}, which keeps no merchant facts,"
            instead = "start a job with FRAUD_MERCHANT_FACTS=true (docs/labels.md)"
        raise RefusedError(
            "features",
            f"{release} does not compute {', '.join(missing)}, which {ref} uses; "
            f"{instead}, then ask again, or train a model without them",
        )


def require_champion(line: Line, withdrawn: str, computed: list[str] | None, job_id: str) -> None:
    """Raise StaleError if a withdrawal leaves only champions that the job cannot compute."""
    known = merchants.computed(merchants=True) if computed is None else computed
    left = [champion.model for champion in line.champions if champion.rollout_id != withdrawn]
    if left and all(lacking(model.features, known) for model in left):
        raise StaleError(
            Reason.LAST_ROLLOUT.value,
            f"nothing could decide without {withdrawn}: the job {job_id} does not compute the features of "
            f"{left[-1]}; promote another model first",
        )


def require_label_delay(scorer: Scorer, label_delay_ms: int | None, job_id: str) -> None:
    """Raise RefusedError unless the model has the job's label delay, on which features of merchants depend.

    Args:
        label_delay_ms: label delay of the running job; None if it is not known.
    """
    trained_ms = scorer.label_delay_ms
    if trained_ms is None or label_delay_ms is None or trained_ms == label_delay_ms:
        return
    raise RefusedError(
        "label_delay",
        f"{scorer.name}/{scorer.version} was trained with a label delay of {trained_ms / DAY_MS:g} days, the "
        f"running job {job_id} has {label_delay_ms / DAY_MS:g}; train it with --label-delay-days "
        f"{label_delay_ms / DAY_MS:g}",
    )


def guards(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Complete guards with all default parameters; the event records them, since defaults may change."""
    with refusing("guards"):
        return policy.read(given).to_json()


def against_training(given: Mapping[str, Any], registry: ModelRegistry, ref: ModelRef) -> dict[str, Any]:
    """Add the model's training scores to drift guards that have none, if the registry has them.

    Args:
        registry: registry of the scores; called only if a guard needs them.
    """
    drift_rules = [
        rule for rule in given["rules"] if rule["name"] == ScoreDrift.NAME and "against" not in rule
    ]
    scores = registry.training_scores(ref) if drift_rules else None
    if scores is None:
        return dict(given)
    training = {"le": scores["le"], "counts": scores["counts"]}
    return {
        **given,
        "rules": [rule | ({"against": training} if rule in drift_rules else {}) for rule in given["rules"]],
    }


def require_judged(trial: Trial, assessment: Assessment, challenger: str) -> None:
    """Check that no guard is breached and each has had data on the challenger: a canary needs evidence.

    Raises:
        RefusedError: a guard is breached, or guards have had no data; the text names them.
    """
    require_no_breach(trial, assessment)
    if missing := assessment.without_data(challenger):
        raise RefusedError(
            "guards_data",
            f"the guards {', '.join(missing)} have no data on {challenger} in {trial.rollout_id}; "
            "leave it in shadow while transactions come; see "
            f"`fraud rollouts show {trial.rollout_id} --verdict`",
        )


def require_progress(trial: Trial, assessment: Assessment, job_id: str) -> None:
    """Raise RefusedError if no progress of the job is known, so that a breach would not be seen."""
    if not assessment.commits:
        raise RefusedError(
            "guards",
            f"the guards of {trial.rollout_id} cannot be judged: there is no progress of a job {job_id}; "
            "check FRAUD_JOB_ID and FRAUD_TOPICS, or start the job",
        )


def require_no_breach(trial: Trial, assessment: Assessment) -> None:
    """Raise RefusedError, which names it, if a guard is breached."""
    if breach := assessment.breach():
        raise RefusedError(
            "guards",
            f"guard {breach.guard} of {trial.rollout_id} is breached by {breach.challenger}; "
            "roll the rollout back",
        )

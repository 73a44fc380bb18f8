"""Checks before a change is accepted, beside the registry's: features, guards, evidence. Pure."""

from collections.abc import Mapping
from typing import Any

from feature_store.catalogue import IDENTITIES, lacking
from models.guards import policy
from models.guards.rules import ScoreDrift
from models.registry import ModelRef
from models.rollouts.events import CANARY
from models.rollouts.machine import Trial
from service.rollouts.assessment import Assessment
from service.rollouts.errors import RefusedError
from service.rollouts.model_registry import ModelRegistry, refusing
from service.rollouts.requests import Proposal

MOST_CHALLENGERS = 4


def require_sound(asked: Proposal) -> None:
    """See that a proposal could be written as an event.

    Raises:
        RefusedError: it could not.
    """
    names = [one.name for one in asked.challengers]
    if not 1 <= len(names) <= MOST_CHALLENGERS or len(set(names)) < len(names):
        raise RefusedError(
            "challenger",
            f"{len(names)} challengers: give 1 to {MOST_CHALLENGERS}, each with a name of its own",
        )
    if sum(one.role == CANARY for one in asked.challengers) > 1:
        raise RefusedError("challenger", "more than one challenger is to be a canary; leave one of them")
    if asked.at_once and len(names) > 1:
        raise RefusedError("challenger", "only one model can be promoted at once; leave one challenger")


def require_features(ref: ModelRef, computed: list[str] | None, job_id: str) -> None:
    """See that every feature of a model is computed.

    Args:
        ref: of the model.
        computed: features that the running job computes; None where none runs: then those of this release.
        job_id: of the job, for the text.

    Raises:
        RefusedError: some are not.
    """
    if missing := lacking(ref.features, IDENTITIES if computed is None else computed):
        who = "this release" if computed is None else f"the release of the running job {job_id}"
        raise RefusedError(
            "features",
            f"{who} does not compute {', '.join(missing)}, which {ref.name}/{ref.version} looks at; start a "
            "release of the job that does, then ask again, or train a model without them",
        )


def guards(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Guards with every parameter, as the event is to hold them: defaults may be others in the next release.

    Raises:
        RefusedError: a guard is unknown, or a parameter makes no sense.
    """
    with refusing("guards"):
        return policy.read(given).to_json()


def against_training(given: Mapping[str, Any], registry: ModelRegistry, ref: ModelRef) -> dict[str, Any]:
    """Guards whose drift is measured against the model's training, where its scores were registered.

    Args:
        given: with every parameter.
        registry: knows the scores; asked only where a guard wants them.
        ref: of the model.

    Raises:
        DeskError: the registry does not answer.
    """
    wanting = [rule for rule in given["rules"] if rule["name"] == ScoreDrift.NAME and "against" not in rule]
    scores = registry.training_scores(ref) if wanting else None
    if scores is None:
        return dict(given)
    told = {"le": scores["le"], "counts": scores["counts"]}
    return {
        **given,
        "rules": [rule | ({"against": told} if rule in wanting else {}) for rule in given["rules"]],
    }


def require_judged(trial: Trial, found: Assessment, challenger: str) -> None:
    """See that every guard has had data on the challenger in shadow: a canary begins on evidence.

    Raises:
        RefusedError: names the guards that have had none.
    """
    require_no_breach(trial, found)
    if missing := found.without_data(challenger):
        raise RefusedError(
            "guards_data",
            f"the guards {', '.join(missing)} saw nothing of {challenger} in {trial.rollout_id}; "
            f"leave it in shadow while transactions come; see `fraud rollouts verdict {trial.rollout_id}`",
        )


def require_no_breach(trial: Trial, found: Assessment) -> None:
    """See that no guard is breached.

    Raises:
        RefusedError: names the guard.
    """
    if broken := found.breach():
        raise RefusedError(
            "guards",
            f"guard {broken.guard} of {trial.rollout_id} is breached by {broken.challenger}; roll it back",
        )

"""Bodies of the rollouts API: of requests, validated before the desk is called."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from models.errors import ModelError
from models.policy import Policy
from models.rollouts.events import Type
from service.rollouts.errors import RefusedError
from service.rollouts.requests import Draft, Proposal, Step

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
RolloutId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$")]
Reason = Annotated[str, Field(min_length=1, max_length=500)]
Model = Annotated[str, Field(pattern=r"^[^/]{1,128}/[1-9][0-9]{0,9}$")]
STRICT = ConfigDict(extra="forbid")

POLICY_EXAMPLE: dict[str, Any] = {
    "threshold": 0.4,
    "max_count_5m": 10,
    "missing_profile": "score",
    "cooldown_s": 600,
}
GUARDS_EXAMPLE: dict[str, Any] = {
    "alpha": 0.01,
    "deadline_h": 72,
    "min_card_hours": 100,
    "rules": [
        {"name": "alert_rate", "max_ratio": 1.5, "min_ratio": 0.5},
        {"name": "failures", "max_share": 0.001},
    ],
}
PROPOSAL_EXAMPLE: dict[str, Any] = {
    "reason": "retrained on March",
    "challengers": [
        {
            "name": "march", "role": "canary", "share_bp": 1000, "model": "card-fraud/7",
            "policy": POLICY_EXAMPLE,
        }
    ],
    "guards": GUARDS_EXAMPLE,
}  # fmt: skip
EVENT_EXAMPLE: dict[str, Any] = {
    "type": "canary_set",
    "challenger": "march",
    "share_bp": 1000,
    "reason": "shadow looks good",
}


class ChallengerBody(BaseModel):
    """A challenger of a proposal."""

    model_config = STRICT

    name: Name
    role: Literal["shadow", "canary"] = "canary"
    share_bp: Annotated[int, Field(ge=0, le=10_000, description="Canary's share of cards, basis points")] = (
        1_000
    )
    model: Annotated[Model, Field(description="NAME/VERSION in the registry")]
    policy: Annotated[
        dict[str, Any], Field(description="As in policy.yaml, without guards", examples=[POLICY_EXAMPLE])
    ]

    def draft(self) -> Draft:
        """Convert the body into the desk's form."""
        return Draft(self.name, self.role, self.share_bp, self.model, policy_of(self.policy))


class ProposalBody(BaseModel):
    """Body of `POST /v1/rollouts`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [PROPOSAL_EXAMPLE]})

    reason: Reason
    challengers: Annotated[list[ChallengerBody], Field(min_length=1, max_length=4)]
    guards: Annotated[
        dict[str, Any] | None,
        Field(description="Guards that may stop the rollout; default: as in docs/rollouts.md"),
    ] = None
    rollout_id: Annotated[RolloutId | None, Field(description="Default: model, version, time")] = None
    line: Annotated[
        Name | None, Field(description="Model line, whose members stay the same from one rollout to the next")
    ] = None

    def proposal(self, key: str) -> Proposal:
        """Convert the body into the desk's form."""
        return Proposal(
            tuple(challenger.draft() for challenger in self.challengers),
            self.reason,
            key,
            self.guards,
            self.rollout_id or "",
            self.line or "",
        )


class EventBody(BaseModel):
    """Body of `POST /v1/rollouts/{rollout_id}/events`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EVENT_EXAMPLE]})

    type: Literal["shadow_started", "canary_set", "paused", "resumed", "rolled_back", "promoted", "withdrawn"]
    reason: Reason
    challenger: Annotated[
        Name | None,
        Field(description="For canary_set, promoted; default: the only one, or the one with role canary"),
    ] = None
    share_bp: Annotated[
        int | None, Field(ge=1, le=10_000, description="For canary_set; default: as proposed")
    ] = None
    from_the_beginning: Annotated[
        bool,
        Field(
            description="For withdrawn: whether the previous champion also decides the transactions that "
            "arrived while the rollout was in force and are not decided yet"
        ),
    ] = False

    def step(self, rollout_id: str, key: str, expected_seq: int | None) -> Step:
        """Convert the body into the desk's form."""
        return Step(
            rollout_id, Type(self.type), self.reason, key, expected_seq, self.challenger or "",
            self.share_bp or 0, self.from_the_beginning,
        )  # fmt: skip


def policy_of(fields: dict[str, Any]) -> Policy:
    """Create a policy from JSON or YAML fields; unknown names are refused.

    Raises:
        RefusedError: a field is unknown, missing or invalid.
    """
    if unknown := sorted(set(fields) - set(Policy.__dataclass_fields__)):
        raise RefusedError("policy", f"a policy has no {unknown[0]!r}; see docs/rollouts.md, Policy")
    try:
        return Policy.from_json(fields)
    except KeyError as fault:
        raise RefusedError("policy", f"the policy has no {fault}; give it") from fault
    except ModelError as fault:
        raise RefusedError("policy", str(fault)) from fault
    except (TypeError, ValueError, OverflowError) as fault:
        raise RefusedError("policy", f"the policy has a bad value: {fault}") from fault

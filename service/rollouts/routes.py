"""Routes of rollouts: `/v1/rollouts`, `/v1/models`, `/v1/decisions`."""

import re
import time
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Header, Path, Query, Request, Response

from feature_store.catalogue import HOUR_MS
from models.rollouts import machine
from models.rollouts.events import Type
from models.rollouts.state import Trial
from service import openapi
from service.rollouts import decisions, drawing, examples, views
from service.rollouts.assessment import assess
from service.rollouts.bodies import EventBody, ProposalBody
from service.rollouts.desk import PROPOSED
from service.rollouts.history import History
from service.rollouts.parts import RolloutParts
from service.rollouts.requests import Actor, Receipt
from service.security import card_ids
from service.security.problems import Problem
from service.security.roles import Caller, Operator, Viewer
from service.threads import Threads

_SEQ = re.compile(r'"?(?P<seq>[1-9][0-9]{0,9})"?')

Id = Annotated[str, Path(max_length=128, description="rollout_id")]
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key", min_length=1, max_length=48,
        description="Key of the request: a repetition writes nothing and gets a receipt for the same events",
    ),
]  # fmt: skip
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="seq that the caller expects the rollout to have (number of its newest event); "
        "a rollback needs none",
    ),
]


def rollout_routes(parts: RolloutParts) -> APIRouter:
    """Create the router."""
    reading, listing, proposing, stepping, stopping = (Threads(most) for most in (4, 4, 4, 8, 8))
    router = APIRouter(tags=["rollouts"], responses=examples.PROBLEMS)
    topic = parts.settings.topics.model_rollouts

    def trial_of(rollout_id: str) -> Trial:
        return drawing.find_trial(_readable(parts).line, rollout_id)

    @router.get("/v1/rollouts", responses=openapi.example(examples.ROLLOUTS))
    def rollouts(_: Viewer) -> dict[str, Any]:
        """List all rollouts, newest first, and the champion."""
        return views.overview(_readable(parts), parts.progress.groups, topic)

    @router.post("/v1/rollouts", status_code=201, responses=openapi.example(examples.RECEIPT, 201))
    async def propose(caller: Operator, body: ProposalBody, key: Key, response: Response) -> Receipt:
        """Open a rollout, if the proposal passes every check.

        The checks: no other rollout is open; the rollout_id is free; the challengers, their policies and the
        guards are valid; the models load, can be trusted, reproduce their golden scores, pass the checks of
        their registration, and fit the features and the label delay of the running job.
        """
        actor, target = _actor(caller), body.rollout_id or body.challengers[0].model

        def checked_and_written() -> Receipt:
            with parts.desk.auditing_refusals(PROPOSED, target, actor):
                proposal = body.proposal(key)
            return parts.desk.propose(proposal, actor)

        return _answer(await proposing.run(checked_and_written), response)

    @router.get("/v1/rollouts/{rollout_id}", responses=openapi.example(examples.ROLLOUT))
    def rollout(_: Viewer, rollout_id: Id, response: Response) -> dict[str, Any]:
        """Return a rollout and its events, with the offsets from which each event is in force."""
        trial = trial_of(rollout_id)
        response.headers["ETag"] = f'"{trial.seq}"'
        return views.rollout(parts.reader.history, trial, parts.progress.groups, topic)

    @router.post(
        "/v1/rollouts/{rollout_id}/events", status_code=201, responses=openapi.example(examples.RECEIPT, 201)
    )
    async def event(
        caller: Operator,
        rollout_id: Id,
        body: EventBody,
        key: Key,
        response: Response,
        if_match: IfMatch = None,
    ) -> Receipt:
        """Write the next step of a rollout.

        A step that counts as a promotion by its effect (docs/rollouts.md), and `withdrawn`, need an admin.
        """
        step = body.step(rollout_id, key, _expected(if_match, Type(body.type)))
        # no other step keeps a step waiting that gives cards back to the champion
        threads = stopping if step.type in (Type.ROLLED_BACK, Type.PAUSED) else stepping
        return _answer(await threads.run(lambda: parts.desk.take(step, _actor(caller))), response)

    @router.get("/v1/rollouts/{rollout_id}/verdict", responses=openapi.example(examples.VERDICT))
    def verdict(_: Viewer, rollout_id: Id) -> dict[str, Any]:
        """Return the guards' current verdict with all counts.

        `fraud rollouts show --evidence FILE` recomputes the verdict from a file that holds this answer.
        """
        trial = trial_of(rollout_id)
        labels = parts.label_counts(trial)
        assessment = assess(_readable(parts), trial, parts.progress.groups, labels)
        seen = parts.guards.seen
        since = seen.since if seen is not None and seen.assessment.rollout_id == rollout_id else None
        return {**assessment.to_json(), "since": since}

    @router.get("/v1/models", responses=openapi.example(examples.MODELS))
    async def models(_: Viewer, name: Annotated[str, Query(max_length=128)] = "card-fraud") -> dict[str, Any]:
        """List the registered versions, newest first, with their current roles."""
        roles = _current_roles(_readable(parts))
        return {
            "name": name,
            "models": [
                {**views.model(ref), "metrics": metrics, "now": roles.get(ref.digest, [])}
                for ref, metrics in await listing.run(lambda: parts.registry.versions(name))
            ],
        }

    @router.get(
        "/v1/decisions/{card_id:path}/{transaction_id:path}", responses=openapi.example(examples.DECISION)
    )
    async def decision(
        caller: Viewer,
        request: Request,
        card_id: Annotated[str, Path(description="A slash in an id is sent as %2F")],
        transaction_id: str,
        since: Annotated[
            int | None,
            Query(ge=0, le=99_999_999_999_999, description="Start of the search, ms; default: an hour ago"),
        ] = None,
    ) -> dict[str, Any]:
        """Explain the decision on a transaction: model, rollout, membership, features, reasons, offsets.

        Without an alert `outcome` is `no_alert`, `not_decided_yet` or `dead_letter`; of a dead letter, which
        no model decides, `refused` has the reason.
        """
        card_id, transaction_id = _ids(request)
        begin = int(time.time() * 1000) - HOUR_MS if since is None else since
        history, groups = _readable(parts), parts.progress.groups
        explanation = await reading.run(
            lambda: decisions.explain(parts.settings, history, groups, card_id, transaction_id, begin)
        )
        shown: dict[str, Any] = card_ids.for_caller(
            {"card_id": card_id, "transaction_id": transaction_id, **explanation}, caller
        )
        return shown

    return router


def _readable(parts: RolloutParts) -> History:
    """Return the history of rollouts; raise a Problem (503) while records may be missing from it."""
    if reason := parts.reader.waiting_for:
        raise Problem(503, "rollouts_unknown", f"{reason}; ask again in a moment")
    return parts.reader.history


def _expected(if_match: str | None, kind: Type) -> int | None:
    if kind is Type.ROLLED_BACK:
        return None
    if if_match is None:
        raise Problem(
            428, "if_match_missing", "send If-Match with the rollout's seq, as GET gives it in ETag"
        )
    match = _SEQ.fullmatch(if_match.strip())
    if match is None:
        raise Problem(
            412, "if_match_unknown", "If-Match is no seq of a rollout; send it as GET gives it in ETag"
        )
    return int(match["seq"])


def _ids(request: Request) -> tuple[str, str]:
    """Return card_id and transaction_id of a path; in that of the router an id's slashes are not escaped."""
    *_, before, card_id, transaction_id = request.scope["raw_path"].decode().split("/")
    if before != "decisions":
        raise Problem(404, "not_found", "there is nothing at this path; send a slash in an id as %2F")
    ids = unquote(card_id), unquote(transaction_id)
    if not all(1 <= len(each) <= 64 for each in ids):
        raise Problem(422, "invalid_request", "an id has 1 to 64 characters; see /openapi.json")
    return ids


def _actor(caller: Caller) -> Actor:
    return Actor(caller.name, caller.role.word, caller.origin)


def _answer(receipt: Receipt, response: Response) -> Receipt:
    response.headers["ETag"] = f'"{receipt.seq}"'
    response.headers["Location"] = f"/v1/rollouts/{quote(receipt.rollout_id, safe='')}"
    if receipt.repeated:
        response.status_code = 200
    return receipt


def _current_roles(history: History) -> dict[str, list[dict[str, str]]]:
    """Return digest of a model -> its roles in the current plan."""
    plan = machine.plan(history.line)
    roles: dict[str, list[dict[str, str]]] = {}
    for item in (plan.champion, *plan.challengers) if plan else ():
        roles.setdefault(item.model.digest, []).append({"role": item.role, "rollout_id": item.rollout_id})
    return roles

"""`GET /v1/quality`: live precision by rule, model version and rollout, in all and by day."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from feature_store.utc import date_of
from service import openapi
from service.quality.parts import QualityParts
from service.security.roles import Viewer

_COUNTS = {"by": "rule", "name": "velocity_5m", "fraud": 41, "genuine": 3, "open": 210, "precision": 0.9318}
EXAMPLE = {"alerts": [_COUNTS], "waiting_for": None}
EXAMPLE_BY_DAY = {"days": [{"day": "2026-11-26", **_COUNTS}], "waiting_for": None}


def quality_routes(parts: QualityParts) -> APIRouter:
    """Create the router."""
    router = APIRouter(tags=["labels"])

    @router.get("/v1/quality", responses=openapi.example(EXAMPLE))
    def outcomes(_: Viewer) -> dict[str, Any]:
        """Return the outcomes of the alerts of 130 days, from labels, by rule, model version and rollout.

        `precision` is the share of frauds among the alerts with a label. `waiting_for` says why
        alerts or labels may be missing.
        """
        return {
            "alerts": [quality.as_json() for quality in parts.qualities()],
            "waiting_for": parts.waiting_for,
        }

    @router.get("/v1/quality/days", responses=openapi.example(EXAMPLE_BY_DAY))
    def by_day(
        _: Viewer,
        by: Literal["rule", "model", "rollout"] | None = None,
        days: Annotated[int, Query(ge=1, le=130)] = 130,
    ) -> dict[str, Any]:
        """Return the outcomes of the alerts of each day, from labels, by rule, model version and rollout.

        `day` is that of the transaction's arrival (UTC); the newest comes first. `days` counts back from the
        day of the newest alert.
        """
        found = parts.by_day()
        first = found[0].newest - days if found else 0
        return {
            "days": [
                {"day": date_of(quality.newest), **quality.as_json()}
                for quality in found
                if quality.newest > first and by in (None, quality.by)
            ],
            "waiting_for": parts.waiting_for,
        }

    return router

"""`GET /v1/quality`: live precision by rule, model version and rollout."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from service import openapi
from service.quality.parts import QualityParts
from service.security.roles import Viewer

EXAMPLE = {
    "alerts": [
        {"by": "rule", "name": "velocity_5m", "fraud": 41, "genuine": 3, "open": 210, "precision": 0.9318}
    ],
    "waiting_for": None,
}


def quality_routes(parts: QualityParts) -> APIRouter:
    """Create the router.

    Args:
        parts: threads and counts.
    """
    router = APIRouter(tags=["labels"])

    @router.get("/v1/quality", responses=openapi.example(EXAMPLE))
    def outcomes(_: Viewer) -> dict[str, Any]:
        """Return the outcomes of the newest alerts, from labels, by rule, model version and rollout.

        `precision` is the share of frauds among the alerts with a label. `waiting_for` says why
        alerts or labels may be missing.
        """
        return {
            "alerts": [{**asdict(quality), "precision": quality.precision} for quality in parts.qualities()],
            "waiting_for": parts.waiting_for,
        }

    return router

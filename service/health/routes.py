"""Routes of health: `/livez`, `/healthz`, `/readyz`, `/metrics`, `/v1/progress`, `/v1/status`."""

import asyncio
import platform
import time
from collections.abc import Callable
from typing import Any

import orjson
from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from feature_store.release import version
from service import openapi
from service.health import examples
from service.health.groups import key_groups
from service.health.job_watch import JobWatch
from service.health.readiness import reasons_of
from service.health.status import status_of
from service.security.problems import Problem
from service.security.roles import Anyone, Viewer

KEPT_S = 0.5


class CachedAnswer:
    """An answer computed in a thread on request, at most once per KEPT_S.

    Concurrent requests wait for the same computation, so fifty clients cost as much as one.
    """

    def __init__(self, compute: Callable[[], bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._compute = compute
        self._clock = clock
        self._lock = asyncio.Lock()
        self._cached: tuple[float, bytes] | None = None

    async def get(self) -> bytes:
        """Return the answer, at most KEPT_S old."""
        answer = self._fresh()
        if answer is not None:
            return answer
        async with self._lock:
            answer = self._fresh()
            if answer is None:
                answer = await run_in_threadpool(self._compute)
                self._cached = (self._clock(), answer)
            return answer

    def _fresh(self) -> bytes | None:
        if self._cached is None or self._clock() - self._cached[0] >= KEPT_S:
            return None
        return self._cached[1]


OFF = ("0", "false", "no")


def health_routes(job: JobWatch, registry: CollectorRegistry) -> APIRouter:
    """Create the router."""
    router = APIRouter()
    versions = {"sidecar": version(), "python": platform.python_version()}
    metrics = CachedAnswer(lambda: generate_latest(registry))
    status = CachedAnswer(
        lambda: orjson.dumps(status_of(job.view(), job.settings, versions), option=orjson.OPT_SERIALIZE_NUMPY)
    )

    @router.get("/livez", responses=openapi.example(examples.ALIVE))
    async def live(_: Anyone) -> dict[str, str]:
        """Answer that this process is alive, without asking any other."""
        return {"status": "ok"}

    @router.get("/healthz", responses=openapi.example(examples.ALIVE))
    async def health(_: Anyone) -> dict[str, str]:
        """Give the same answer as `/livez`."""
        return {"status": "ok"}

    @router.get(
        "/readyz",
        responses=openapi.example(examples.READY)
        | openapi.example(examples.NOT_READY, 503, "Not ready; only authenticated callers get the reasons"),
    )
    def ready(caller: Anyone, verbose: str | None = None) -> JSONResponse:
        """Report whether metrics are complete and all key groups keep up; if not, the status is 503.

        Only authenticated callers get the reasons.
        """
        checks = job.checks()
        body: dict[str, Any] = {"ready": all(check.is_ok for check in checks)}
        if caller is not None:  # reasons name topics and brokers
            body["reasons"] = reasons_of(checks)
        if caller is not None and verbose is not None and verbose.lower() not in OFF:
            body["checks"] = [check.to_json() for check in checks]
        return JSONResponse(body, status_code=200 if body["ready"] else 503)

    @router.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses=openapi.example(examples.METRICS, media_type="text/plain"),
    )
    async def scrape(_: Viewer) -> Response:
        """Return the metrics for Prometheus."""
        return Response(await metrics.get(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/v1/status", responses=openapi.example(examples.STATUS))
    async def current_status(_: Viewer) -> Response:
        """Return the status: problems with their onset and runbook links, rates, lag, state and rollouts."""
        return Response(await status.get(), media_type="application/json")

    @router.get("/v1/progress", responses=openapi.example(examples.PROGRESS))
    def newest(_: Viewer) -> JSONResponse:
        """Return the newest progress record (job-progress.v2) of each key group; 404 before the first.

        The example answer is abbreviated.
        """
        groups = job.progress.groups
        if not groups:
            raise Problem(404, "no_progress", "the job has not written progress yet; is it running?")
        by_group = {str(group): groups[group] for group in sorted(groups)}
        return JSONResponse({"key_groups": key_groups(groups), "groups": by_group})

    return router

"""The sidecar's HTTP face."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from service import api_docs, security
from service.groups import end_offsets, key_groups
from service.lag_watch import LagWatch
from service.metrics import FraudCollector
from service.progress_reader import ProgressReader
from service.readiness import reasons_against
from service.security.problems import Problem
from service.security.roles import Anyone, Viewer, see_all_declared
from service.settings import ServiceSettings

LINKS = {
    "health": "/healthz",
    "ready": "/readyz",
    "metrics": "/metrics",
    "progress": "/v1/progress",
    "audit": "/v1/audit",
    "docs": "/docs",
    "openapi": "/openapi.json",
}


def create_app(settings: ServiceSettings, clock: Callable[[], float] = time.time) -> FastAPI:
    """The application; its threads live from start-up to shutdown.

    Args:
        settings: what to watch.
        clock: seconds since 1970-01-01 UTC.

    Raises:
        TokensError: the tokens file cannot be used.
    """
    progress = ProgressReader(settings)
    watch = LagWatch(settings, lambda: end_offsets(progress.groups), clock)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FraudCollector(progress, watch, clock))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        progress.start()
        watch.start()
        yield
        watch.stop()
        progress.stop()

    # the pages of FastAPI's own would load scripts from elsewhere
    app = FastAPI(
        title="card-fraud sidecar",
        version=_version(),
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    security.install(app, settings, clock)
    api_docs.install(app)

    @app.get("/")
    def index(_: Anyone) -> dict[str, Any]:
        """What is here."""
        return {"service": "card-fraud sidecar", "job_id": settings.job_id, "links": LINKS}

    @app.get("/healthz")
    def health(_: Anyone) -> dict[str, str]:
        """This process is up."""
        return {"status": "ok"}

    @app.get("/readyz")
    def ready(caller: Anyone) -> JSONResponse:
        """The metrics can be believed and every key group keeps up; 503 if not: viewers get reasons."""
        reasons = reasons_against(
            now_s=clock(),
            broker_fault=watch.fault,
            waiting_for=progress.waiting_for,
            lag=watch.lag,
            groups=progress.groups,
            transactions_topic=settings.topics.transactions,
            max_age_s=settings.max_progress_age_s,
            max_silence_s=settings.max_silence_s,
        )
        body: dict[str, Any] = {"ready": not reasons}
        if caller is not None:  # they name topics and brokers
            body["reasons"] = reasons
        return JSONResponse(body, status_code=503 if reasons else 200)

    @app.get("/metrics")
    def metrics(_: Viewer) -> Response:
        """For Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/progress")
    def newest(_: Viewer) -> JSONResponse:
        """The newest progress record (job-progress.v2) of each key group; 404 before the first."""
        groups = progress.groups
        if not groups:
            raise Problem(404, "no_progress", "the job has not written progress yet; is it running?")
        by_group = {str(group): groups[group] for group in sorted(groups)}
        return JSONResponse({"key_groups": key_groups(groups), "groups": by_group})

    see_all_declared(app)
    return app


def _version() -> str:
    try:
        return version("card-fraud")
    except PackageNotFoundError:
        return "0"  # run from a checkout that is not installed

"""The sidecar's HTTP face: what it is composed of."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from service.health.job_watch import JobWatch
from service.health.routes import health_routes, sidecar_version
from service.metrics.collector import registry_of
from service.metrics.http import HttpMetrics
from service.settings import ServiceSettings

LINKS = {
    "live": "/livez",
    "health": "/healthz",
    "ready": "/readyz",
    "metrics": "/metrics",
    "status": "/v1/status",
    "progress": "/v1/progress",
    "openapi": "/openapi.json",
}


def create_app(settings: ServiceSettings, clock: Callable[[], float] = time.time) -> FastAPI:
    """The application; its threads live from start-up to shutdown.

    Args:
        settings: what to watch.
        clock: seconds since 1970-01-01 UTC.
    """
    job = JobWatch(settings, clock)
    registry = registry_of(job)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        job.start()
        yield
        job.stop()

    app = FastAPI(title="card-fraud sidecar", version=sidecar_version(), lifespan=lifespan)
    app.add_middleware(HttpMetrics, registry=registry)
    app.include_router(health_routes(job, registry))

    @app.get("/")
    def index() -> dict[str, Any]:
        """What is here."""
        return {"service": "card-fraud sidecar", "job_id": settings.job_id, "links": LINKS}

    return app

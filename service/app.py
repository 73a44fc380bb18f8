"""The sidecar's FastAPI application, composed of its parts."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI

from feature_store.release import version
from service import openapi
from service.backtests.jobs import BacktestJobs
from service.backtests.routes import backtest_routes
from service.head_requests import HeadAsGet
from service.health.job_watch import JobWatch
from service.health.routes import health_routes
from service.labels.routes import label_routes
from service.metrics.collector import registry_of
from service.metrics.http import HttpMetrics
from service.metrics.of_quality import of_quality
from service.metrics.of_rollouts import of_guards, of_labelled
from service.pages.routes import page_routes
from service.quality.parts import QualityParts
from service.quality.routes import quality_routes
from service.replays.routes import replay_routes
from service.rollouts.parts import RolloutParts
from service.rollouts.routes import rollout_routes
from service.security import installation
from service.security.roles import require_declared_roles
from service.settings import ServiceSettings
from streaming_job.labels.ledger import Ledger


def create_app(settings: ServiceSettings, clock: Callable[[], float] = time.time) -> FastAPI:
    """Create the application; its threads run from start-up to shutdown."""
    job = JobWatch(settings, clock)
    rollouts = RolloutParts(settings, job.progress, clock)
    ledger = Ledger(settings.bootstrap_servers, settings.kafka, settings.topics.labels)
    quality = QualityParts(settings)
    backtests = BacktestJobs(settings.archive, clock)
    more_metrics = [
        lambda: of_guards(rollouts.findings()),
        lambda: of_labelled(rollouts.labelled()),
        lambda: of_quality(quality.qualities()),
    ]
    registry = registry_of(job, more_metrics)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        job.start()
        rollouts.start()
        quality.start()
        yield
        backtests.stop()
        quality.stop()
        rollouts.stop()
        job.stop()

    # FastAPI's documentation pages would load scripts from another host
    app = FastAPI(
        title="card-fraud sidecar",
        version=version(),
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # behind a proxy that terminates TLS a redirect would lead clients, with their tokens, to http
        redirect_slashes=False,
        responses=openapi.PROBLEMS,
    )
    app.add_middleware(HeadAsGet)
    installation.install(app, settings, clock)
    openapi.install(app)
    app.add_middleware(HttpMetrics, registry=registry)  # added last, so it also counts refused requests
    app.include_router(health_routes(job, registry))
    app.include_router(rollout_routes(rollouts))
    app.include_router(label_routes(ledger, clock))
    app.include_router(quality_routes(quality))
    app.include_router(backtest_routes(backtests))
    app.include_router(replay_routes(settings.work_dir, clock))
    app.include_router(page_routes(quality.alerts, settings.job_id))
    require_declared_roles(app)
    return app

"""Metrics of the HTTP requests that the sidecar answers."""

import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics.table import FAMILIES

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNKNOWN = "unmatched"
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class HttpMetrics:
    """ASGI middleware that counts requests and measures their duration.

    The label `route` has the route's template, never the path, so the number of label values is bounded.
    """

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        requests = FAMILIES["fraud_sidecar_http_requests"]
        self._requests = Counter(requests.name, requests.meaning, requests.labels, registry=registry)
        seconds = FAMILIES["fraud_sidecar_http_request_duration_seconds"]
        self._seconds = Histogram(
            seconds.name, seconds.meaning, seconds.labels, registry=registry, buckets=BOUNDS
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and measure its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began = 500, time.perf_counter()

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            route, method = route_of(scope), scope["method"]
            label = method if method in METHODS else "other"
            self._requests.labels(label, route, str(status)).inc()
            self._seconds.labels(route).observe(time.perf_counter() - began)


def route_of(scope: Scope) -> str:
    """Return the template of the route that matched a request; UNKNOWN without one."""
    route: Any = scope.get("route")
    return str(getattr(route, "path_format", UNKNOWN))

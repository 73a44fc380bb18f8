"""Routes of the status page: `/`, `/page/...`, `/v1/caller` and `/v1/alerts`."""

from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from service import openapi
from service.pages import alerts
from service.quality.alert_feed import SHOWN, AlertFeed
from service.security import card_ids
from service.security.problems import Problem
from service.security.roles import Anyone, Viewer

INDEX = "index.html"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript"}
FILES = {
    file.name: (file.read_bytes(), TYPES[suffix])
    for file in files("service.pages").iterdir()
    if (suffix := file.name[file.name.rfind(".") :]) in TYPES
}
"""File name -> (content, media type); read once, so that the page and its scripts are of one release."""


def page_routes(feed: AlertFeed, job_id: str) -> APIRouter:
    """Create the router."""
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    async def index(_: Anyone) -> Response:
        """Return the status page."""
        return _file(INDEX)

    @router.get("/page/{name}", include_in_schema=False)
    async def asset(_: Anyone, name: Annotated[str, Path(max_length=64)]) -> Response:
        """Return a file of the status page."""
        return _file(name)

    @router.get(
        "/v1/caller",
        responses=openapi.example({"name": "alice", "role": "operator", "job_id": "card-fraud"}),
    )
    async def identity(caller: Anyone) -> dict[str, str | None]:
        """Return the caller's name and role, and the job's id; nulls for an unauthenticated caller."""
        if caller is None:
            return {"name": None, "role": None, "job_id": None}
        return {"name": caller.name, "role": caller.role.word, "job_id": job_id}

    @router.get("/v1/alerts", responses=openapi.example(alerts.EXAMPLE))
    def newest(
        caller: Viewer, limit: Annotated[int, Query(ge=1, le=SHOWN, description="Number of alerts")] = 20
    ) -> dict[str, Any]:
        """Return the newest alerts, newest first, with reasons in sentences; card ids are masked for viewers.

        `waiting_for` says why alerts may be missing, `unreadable` is the number of invalid records.
        """
        newest_alerts, unreadable = alerts.views(feed.newest(limit))
        return {
            "alerts": card_ids.for_caller(newest_alerts, caller),
            "unreadable": unreadable,
            "waiting_for": feed.missing,
        }

    return router


def _file(name: str) -> Response:
    if name not in FILES:
        raise Problem(404, "not_found", "the page has no such file; see /")
    content, kind = FILES[name]
    return Response(content, media_type=kind)

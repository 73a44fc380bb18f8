"""Routes of the status page: `/`, `/page/...`, and what it asks for beside the other rooms' answers."""

from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from service.pages import alerts
from service.quality.alert_feed import SHOWN, AlertFeed
from service.security import card_ids
from service.security.problems import Problem
from service.security.roles import Anyone, Viewer

INDEX = "index.html"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript"}
FILES = {
    found.name: (found.read_bytes(), TYPES[suffix])
    for found in files("service.pages").iterdir()
    if (suffix := found.name[found.name.rfind(".") :]) in TYPES
}
"""Name -> content and its type; read once: a page and its scripts are of one release."""


def page_routes(feed: AlertFeed, job_id: str) -> APIRouter:
    """The router.

    Args:
        feed: of the newest alerts.
        job_id: of the job.
    """
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    async def index(_: Anyone) -> Response:
        """The status page."""
        return _file(INDEX)

    @router.get("/page/{name}", include_in_schema=False)
    async def asset(_: Anyone, name: Annotated[str, Path(max_length=64)]) -> Response:
        """A file of the status page."""
        return _file(name)

    @router.get("/v1/caller")
    async def who(caller: Anyone) -> dict[str, str | None]:
        """Who the caller is taken for; nulls without a good token."""
        known = (None, None) if caller is None else (caller.name, caller.role.word)
        return {"name": known[0], "role": known[1], "job_id": None if caller is None else job_id}

    @router.get("/v1/alerts")
    def newest(
        caller: Viewer, limit: Annotated[int, Query(ge=1, le=SHOWN, description="Alerts at most")] = 20
    ) -> dict[str, Any]:
        """The newest alerts, newest first, with their reasons in sentences; card ids masked for viewers.

        `waiting_for` tells why some may be missing, `unreadable` how many of the records were no alerts.
        """
        found, unreadable = alerts.shown(feed.newest(limit))
        return {
            "alerts": card_ids.for_caller(found, caller),
            "unreadable": unreadable,
            "waiting_for": feed.waiting_for,
        }

    return router


def _file(name: str) -> Response:
    if name not in FILES:
        raise Problem(404, "not_found", "the page has no such file; see /")
    content, kind = FILES[name]
    return Response(content, media_type=kind)

"""`GET /v1/replays`: how far the replays are whose work directory is the sidecar's."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from service import openapi
from service.replays.progress import Progress, ReplayProgressError, State, read_all
from service.security.problems import Problem
from service.security.roles import Viewer

_PROGRESS = Progress(
    "better", State.RUNNING, 1_763_873_600_000, 3_100_000, 310_000.0,
    {"0": 4_200_000, "1": 4_700_000}, {"0": 6_000_000, "1": 6_000_000},
)  # fmt: skip


def replay_routes(work_dir: Path | None, clock: Callable[[], float]) -> APIRouter:
    """Create the router.

    Args:
        work_dir: the work directory of the replays; None: there are none.
    """
    router = APIRouter(tags=["replays"])

    @router.get("/v1/replays", responses=openapi.example({"replays": [_view(_PROGRESS)]}))
    def all_replays(_: Viewer) -> dict[str, Any]:
        """Return the progress of the replays: state, speed, time left, and the offsets where they are.

        `silent` is a replay that was running, but has not shown progress for a minute. The sidecar sees
        replays with its own `FRAUD_WORK_DIR`. See docs/replay.md.
        """
        try:
            found = [] if work_dir is None else read_all(work_dir)
        except ReplayProgressError as fault:
            raise Problem(503, "replays_unreadable", str(fault)) from fault
        return {"replays": [_view(progress.seen_at(int(clock() * 1000))) for progress in found]}

    return router


def _view(progress: Progress) -> dict[str, Any]:
    left = progress.seconds_left
    return {**asdict(progress), "seconds_left": None if left is None else round(left, 1)}

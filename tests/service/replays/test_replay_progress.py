"""The progress of replays on the sidecar: what their files say, or that it cannot be known."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.replays.progress import FILE, SILENT_MS, Progress, State
from service.replays.routes import replay_routes
from service.security import problems
from service.security.roles import CALLER, Caller, Role

pytestmark = pytest.mark.unit

NOW_MS = 1_800_000_000_000


def write(work_dir: Path, name: str, state: State, **changes: Any) -> None:
    progress = Progress(name, state, NOW_MS, 300, 150.0, {"0": 600}, {"0": 600, "1": 300})
    directory = work_dir / "replays" / name
    directory.mkdir(parents=True)
    (directory / FILE).write_text(json.dumps({**asdict(progress), **changes}))


def answer(work_dir: Path | None) -> Any:
    """Status and JSON of the answer to a viewer."""
    app = FastAPI()
    problems.install(app)
    app.include_router(replay_routes(work_dir, lambda: NOW_MS / 1000))

    async def as_viewer(scope: Any, receive: Any, send: Any) -> None:
        scope[CALLER] = Caller("vera", Role.VIEWER, "10.0.0.7")
        await app(scope, receive, send)

    result = TestClient(as_viewer).get("/v1/replays")
    return result.status_code, result.json()


def states(work_dir: Path) -> dict[str, tuple[str, float | None]]:
    status, shown = answer(work_dir)
    assert status == 200, shown
    return {replay["name"]: (replay["state"], replay["seconds_left"]) for replay in shown["replays"]}


def test_each_replay_is_shown_with_the_time_left_if_it_is_known(tmp_path: Path) -> None:
    write(tmp_path, "a", State.RUNNING)
    write(tmp_path, "b", State.WAITING)
    write(tmp_path, "c", State.RUNNING, per_s=0.0)
    write(tmp_path, "d", State.FAILED, error="the disk is full")
    (tmp_path / "replays" / "planned").mkdir()
    assert states(tmp_path) == {
        "a": ("running", 2.0), "b": ("waiting", None), "c": ("running", None), "d": ("failed", None),
    }  # fmt: skip
    shown = answer(tmp_path)[1]["replays"]
    assert (shown[0]["positions"], shown[0]["ends"]) == ({"0": 600}, {"0": 600, "1": 300})
    assert shown[3]["error"] == "the disk is full"


def test_a_replay_that_was_killed_is_silent_but_one_that_has_ended_stays(tmp_path: Path) -> None:
    old = NOW_MS - SILENT_MS - 1
    for name, state in (("a", State.RUNNING), ("b", State.WAITING), ("c", State.DONE), ("d", State.STOPPED)):
        write(tmp_path, name, state, written_at=old)
    assert states(tmp_path) == {
        "a": ("silent", None), "b": ("silent", None), "c": ("done", None), "d": ("stopped", None),
    }  # fmt: skip


def test_no_replays_are_an_empty_list(tmp_path: Path) -> None:
    assert answer(tmp_path) == answer(None) == (200, {"replays": []})


@pytest.mark.parametrize("content", ['{"name": "a"', '{"state": "lost"}', "[]", '{"state": "done"}'])
def test_a_file_that_cannot_be_read_is_a_problem_and_not_silence(tmp_path: Path, content: str) -> None:
    write(tmp_path, "a", State.RUNNING)
    (tmp_path / "replays" / "a" / FILE).write_text(content)
    status, problem = answer(tmp_path)
    assert (status, problem["code"]) == (503, "replays_unreadable")
    (tmp_path / "x").write_text("")
    assert answer(tmp_path / "x")[0] == 503

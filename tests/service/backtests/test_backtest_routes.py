"""Backtests of the sidecar: one at a time, in a process that may fail, be killed or be cancelled."""

import base64
import hashlib
import json
import multiprocessing
import os
import re
import shlex
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.backtests import jobs, page, running, tables
from service.backtests.jobs import BacktestJobs
from service.backtests.routes import ASKED, backtest_routes
from service.security import problems
from service.security.headers import SafeHeaders
from service.security.roles import CALLER, Caller, Role
from streaming_job.backtest.request import Request

pytestmark = pytest.mark.unit


class Sidecar:
    """The routes for a caller, over an archive that does not exist."""

    def __init__(self, place: str, role: Role = Role.OPERATOR) -> None:
        self.jobs = BacktestJobs(place, lambda: 1_800_000_000.0)
        app = FastAPI()
        problems.install(app)
        app.include_router(backtest_routes(self.jobs))

        async def as_caller(scope: Any, receive: Any, send: Any) -> None:
            scope[CALLER] = Caller("ada", role, "10.0.0.7")
            await app(scope, receive, send)

        self.client = TestClient(as_caller)

    def asked(self, method: str, path: str = "", **more: Any) -> tuple[int, dict[str, Any]]:
        """Status and answer of a request."""
        answer = self.client.request(method, f"/v1/backtests{path}", **more)
        return answer.status_code, answer.json()

    def started(self) -> str:
        """Path of a backtest that runs."""
        status, answer = self.asked("POST", json=ASKED)
        assert (status, answer["state"]) == (202, "running"), answer
        return f"/{answer['id']}"


def processes() -> list[psutil.Process]:
    """The processes of backtests."""
    return [each for each in psutil.Process().children() if "spawn_main" in " ".join(each.cmdline())]


@pytest.fixture
def sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("FRAUD_WORK_DIR", str(tmp_path / "work"))
    result = Sidecar(str(tmp_path / "nothing"))
    yield result
    result.jobs.stop()
    assert not processes()


def test_one_backtest_runs_at_a_time_and_tells_why_it_failed(
    sidecar: Sidecar, wait_for: Callable[..., Any]
) -> None:
    path = sidecar.started()
    assert sidecar.asked("POST", json=ASKED)[1]["code"] == "backtest_running"
    wait_for(lambda: sidecar.asked("GET", path)[1]["state"] != "running", what="its end")
    _, failed = sidecar.asked("GET", path)
    assert (failed["state"], failed["by"], failed["asked"], failed["report"]) == (
        "failed",
        "ada",
        ASKED,
        None,
    )
    assert "nothing is no archive" in failed["error"]
    status, answer = sidecar.asked("GET", f"{path}/page")
    assert (status, answer["code"]) == (409, "backtest_has_no_report")
    assert failed["error"] in answer["detail"]
    sidecar.started()
    listed = sidecar.asked("GET")[1]["backtests"]
    assert [each["state"] for each in listed] == ["running", "failed"]
    assert all("report" not in each for each in listed)


def test_the_request_of_the_page_is_understood(sidecar: Sidecar) -> None:
    text = (Path(__file__).parents[3] / "docs" / "backtest.md").read_text()
    (command,) = re.findall(r"^    (curl .* https://sidecar:8000/v1/backtests)$", text, re.MULTILINE)
    words = shlex.split(command)
    # what curl sends with --json, and with -d
    content_type = "application/json" if "--json" in words else "application/x-www-form-urlencoded"
    body = next(word for word in words if word.startswith("{"))
    status, answer = sidecar.asked("POST", content=body, headers={"Content-Type": content_type})
    assert (status, answer["asked"]) == (202, json.loads(body)), answer


def test_a_body_that_is_not_declared_as_json_is_refused_with_the_header_to_send(sidecar: Sidecar) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, answer = sidecar.asked("POST", content=json.dumps(ASKED), headers=form)
    assert (status, answer["code"]) == (422, "invalid_request")
    assert "Content-Type: application/json" in answer["detail"]


def test_a_backtest_is_cancelled(sidecar: Sidecar) -> None:
    path = sidecar.started()
    assert sidecar.asked("DELETE", path)[1]["state"] == "cancelled"
    assert sidecar.asked("DELETE", path)[1]["state"] == "cancelled"
    path = sidecar.started()
    assert sidecar.asked("DELETE", path)[1]["state"] == "cancelled"


def test_a_backtest_whose_process_is_killed_has_failed(
    sidecar: Sidecar, wait_for: Callable[..., Any]
) -> None:
    path = sidecar.started()
    (process,) = processes()
    process.kill()
    wait_for(lambda: sidecar.asked("GET", path)[1]["state"] == "failed", what="its failure")
    assert "ended without a report" in sidecar.asked("GET", path)[1]["error"]


def test_a_process_that_cannot_be_started_leaves_no_backtest(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(jobs.SPAWN.Process, "start", fail)
        status, answer = sidecar.asked("POST", json=ASKED)
    assert (status, answer["code"]) == (503, "no_process")
    assert sidecar.asked("GET")[1]["backtests"] == []
    sidecar.started()


def test_a_process_that_is_killed_within_a_message_has_failed(sidecar: Sidecar) -> None:
    receiver, sender = jobs.SPAWN.Pipe(duplex=False)
    os.write(sender.fileno(), struct.pack("!i", 1000) + b"begun")
    sender.close()
    process = jobs.SPAWN.Process(target=print)
    process.start()
    job = jobs.Backtest("id", "ada", 0, {})
    sidecar.jobs._follow(job, process, receiver)
    assert job.state is jobs.State.FAILED


def test_a_backtest_that_needs_more_memory_than_is_left_fails_before_the_kernel_kills_the_sidecar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def greedy(*_: object) -> None:
        np.ones(1 << 30, np.uint8)

    monkeypatch.setattr(running, "memory_left", lambda: 256 << 20)
    monkeypatch.setattr(running, "report_of", greedy)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=running.work, args=(sender, "", Request()))
    process.start()
    sender.close()
    kind, text = receiver.recv()
    process.join(30)
    assert (kind, "more memory than is left" in text) == ("error", True)


@pytest.mark.parametrize(("limit", "left"), [("100", 50), ("max", None)])
def test_memory_that_a_container_leaves_counts_without_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, left: int | None
) -> None:
    free = running.memory_left()
    place = tmp_path / "of/this"
    place.mkdir(parents=True)
    (tmp_path / "cgroup").write_text("0::/of/this\n")
    for name, content in (("max", limit), ("current", "60"), ("stat", "anon 40\ninactive_file 10\n")):
        (place / f"memory.{name}").write_text(content)
    monkeypatch.setattr(running, "SELF", tmp_path)
    monkeypatch.setattr(running, "CGROUPS", tmp_path)
    assert running.memory_left() == left if left else running.memory_left() > free / 2


def test_the_threshold_of_a_budget_is_shown_in_full() -> None:
    budget = {"alerts_a_day": 5, "used": 1.0, "days_over": [], "threshold": 0.42275449}
    assert "threshold 0.42275449 keeps it" in tables._budget(budget)


def test_a_browser_applies_the_style_of_a_served_page(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("facts", "tables"):
        monkeypatch.setattr(page, name, lambda report: [])
    monkeypatch.setattr(page, "sample_table", lambda report: tables.Table("Sample", (), ()))
    sidecar.jobs._jobs["id"] = jobs.Backtest("id", "ada", 0, {}, jobs.State.DONE, report={})
    browser = TestClient(SafeHeaders(sidecar.client.app, tls=False))
    answer = browser.get("/v1/backtests/id/page")
    (style,) = re.findall("<style>(.*)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert f"style-src 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


def test_what_cannot_be_asked_is_refused(sidecar: Sidecar) -> None:
    refused = [
        ({"threshold": 2}, "invalid_request"),
        ({"policy": {"threshold": 0.5, "max_count_5m": 3, "missing_profile": "score", "more": 1}}, "policy"),
        ({"model": "no-version"}, "invalid_request"),
        ({"days": 0}, "invalid_request"),
    ]
    for body, code in refused:
        status, answer = sidecar.asked("POST", json=body)
        assert (status, answer["code"]) == (422, code), answer
    infinite = sidecar.asked(
        "POST", content='{"budget": 1e999}', headers={"Content-Type": "application/json"}
    )
    assert (infinite[0], infinite[1]["code"]) == (422, "invalid_request")
    assert sidecar.asked("GET", "/other")[1]["code"] == "unknown_backtest"
    assert Sidecar("").asked("POST", json={})[1]["code"] == "no_archive"
    status, answer = Sidecar("archive", Role.VIEWER).asked("POST", json=ASKED)
    assert (status, answer["code"]) == (403, "insufficient_role")


def test_the_newest_are_kept(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "KEPT", 2)
    paths = []
    for _ in range(4):
        paths.append(sidecar.started())
        sidecar.asked("DELETE", paths[-1])
    listed = [f"/{each['id']}" for each in sidecar.asked("GET")[1]["backtests"]]
    assert listed == paths[:1:-1]

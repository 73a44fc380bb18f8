"""Load tests of a real job: their measurements, and the conditions under which they fail."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import psutil
import pytest
from harness.light_load import BUSY, light
from harness.logins import without_login
from thoroughness import only_thorough

from deploy.local.ports import HOST, free_port
from loadtests.faults.http_servers import get
from loadtests.faults.installation import Installation
from loadtests.faults.job_process import JobProcess
from loadtests.locust_run import peak
from loadtests.locust_run.launch import LocustProcesses
from loadtests.locust_run.locust_stats import NAME
from loadtests.locust_run.plan import LoadTestPlan
from loadtests.locust_run.report import LoadTestReport
from loadtests.locust_run.search import Search
from loadtests.locust_run.targets import Target
from loadtests.locust_run.verdict import Bounds, failures
from loadtests.rig import report as reporting

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
WaitFor = Callable[..., object]
PAUSE_S = 2.0


@pytest.fixture
def plan(tmp_path: Path) -> LoadTestPlan:
    return light(tmp_path / "run")


def running_since(run: LocustProcesses, second: float) -> Callable[[], bool]:
    """Function that tells whether a run has been sending for `second` seconds."""

    def reached() -> bool:
        shown: dict[str, Any] = run.progress()
        return shown.get("phase") == "running" and shown["at_s"] >= second

    return reached


@only_thorough
def test_a_job_stopped_for_two_seconds_shows_in_the_latency_tail(
    installed: Installation, warm_job: JobProcess, plan: LoadTestPlan, wait_for: WaitFor
) -> None:
    with LocustProcesses(replace(plan, for_s=12.0), without_login(installed), 1) as run:
        wait_for(running_since(run, 6.0), deadline_s=120, what="six seconds of load")
        family = [psutil.Process(warm_job.pid), *warm_job.descendants()]
        for process in family:
            process.suspend()
        try:
            time.sleep(PAUSE_S)  # the fault itself
        finally:
            for process in family:
                process.resume()
        result = run.wait()
    # latencies include those of records due during the pause: such a record waited until the pause ended
    assert result.latency_ms["p99"] > PAUSE_S * 1_000 * 0.75
    assert result.latency_ms["p50"] < PAUSE_S * 1_000 / 2
    assert result.unsent == 0
    assert result.slip_ms["p99"] < PAUSE_S * 1_000 / 4
    assert [line for line in failures(result, replace(BUSY, p99_ms=500.0)) if line.startswith("latency: p99")]


@only_thorough
def test_a_generator_that_cannot_keep_up_fails_the_run(
    installed: Installation, warm_job: JobProcess, plan: LoadTestPlan, wait_for: WaitFor
) -> None:
    with LocustProcesses(replace(plan, for_s=6.0), without_login(installed), 1) as run:
        wait_for(running_since(run, 4.0), deadline_s=120, what="four seconds of load")
        os.kill(run.main.pid, signal.SIGSTOP)
        try:
            # longer than the rest of the schedule and the second after it in which late records are sent
            time.sleep(8.0)
        finally:
            os.kill(run.main.pid, signal.SIGCONT)
        result = run.wait()
        code = run.main.ended_with
    actual = failures(result, Bounds(slip_p99_ms=5.0))
    assert {line.split(":")[0] for line in actual} >= {"achieved rate", "unsent"}
    assert result.unsent > 300
    assert code == 1


@only_thorough
def test_a_search_for_the_peak_tries_rates_until_one_fails(
    installed: Installation, warm_job: JobProcess, plan: LoadTestPlan
) -> None:
    bounds = replace(BUSY, p99_ms=60_000.0)
    target = Target(without_login(installed), own_topics=True)
    search = Search(replace(plan, for_s=4.0), target, bounds, 1, lambda _: None)
    search_result = peak.find(search.probe, 300.0, most=600.0, probes=4)
    assert [(probe.rate, probe.passed) for probe in search_result.probes] == [(300.0, True), (600.0, True)]
    impossible = Search(search.plan, target, replace(bounds, p99_ms=0.001), 1, lambda _: None)
    failed = peak.find(impossible.probe, 300.0, most=600.0, probes=1)
    assert (failed.rate, failed.probes[0].generator_limited) == (None, False)
    assert "latency: p99" in failed.limited_by
    report = LoadTestReport(reporting.Report(), search.results[600.0], bounds, None, (), search_result)
    assert report.as_html().count("<svg") == 6


@only_thorough
def test_locusts_web_page_shows_the_run_and_ends_with_it(
    installed: Installation, warm_job: JobProcess, plan: LoadTestPlan, wait_for: WaitFor
) -> None:
    port = free_port()
    page = f"http://{HOST}:{port}/"
    with LocustProcesses(plan, without_login(installed), 2, web_port=port) as run:
        wait_for(running_since(run, 4.0), deadline_s=120, what="four seconds of load")
        assert "locust" in get(page).lower()
        wait_for(
            lambda: any(row["name"] == NAME for row in json.loads(get(f"{page}stats/requests"))["stats"]),
            what="the alerts among locust's statistics",
        )
        result = run.wait()
    assert failures(result, BUSY) == []
    with pytest.raises(URLError):
        get(page)


@only_thorough
def test_a_dead_worker_ends_the_run_within_seconds(
    installed: Installation, warm_job: JobProcess, plan: LoadTestPlan, wait_for: WaitFor
) -> None:
    with LocustProcesses(replace(plan, for_s=120.0), without_login(installed), 2) as run:
        wait_for(running_since(run, 3.0), deadline_s=120, what="three seconds of load")
        run.workers[1].kill()
        begun = time.monotonic()
        result = run.wait()
        took = time.monotonic() - begun
    assert took < 20
    assert len(result.lost_workers) == 1
    assert [line for line in failures(result, BUSY) if line.startswith("worker lost: ")]

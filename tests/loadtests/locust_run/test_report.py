import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from loadtests.locust_run import locust_stats
from loadtests.locust_run.collector import Collector
from loadtests.locust_run.lane import RUNNING, SENT
from loadtests.locust_run.peak import Peak, Probe
from loadtests.locust_run.plan import LoadTestPlan
from loadtests.locust_run.report import LoadTestReport
from loadtests.locust_run.result import HISTOGRAMS, Result
from loadtests.locust_run.verdict import Audit, Bounds
from loadtests.rig import histograms
from loadtests.rig import report as reporting

pytestmark = pytest.mark.unit


def said(lane: int, at_s: float, latencies_us: list[int], **change: Any) -> dict[str, Any]:
    """A worker's report."""
    latency, slip = histograms.of(latencies_us), histograms.of([500] * 10)
    arrival = histograms.of([us - 1_000 for us in latencies_us])
    return {
        "lane": lane, "state": RUNNING, "error": "", "at_s": at_s, "events": 110, "sent": 0, "cpu_s": 0.0,
        "sent_measured": 0, "acknowledged": 0, "acknowledged_at_end": 0, "ended_s": 0.0, "unsent": 0,
        "alerts": len(latencies_us), "latency": latency.encode(), "slip": slip.encode(),
        "arrival": arrival.encode(), **change,
    }  # fmt: skip


def collected(directory: Path) -> Collector:
    """Two workers, 20 transactions/s for ten seconds after two of warm-up."""
    plan = LoadTestPlan(rate=20.0, for_s=10.0, warm_up_s=2.0, directory=str(directory))
    collector = Collector(plan, 2)
    for at in range(1, 13):
        for lane in (0, 1):
            collector.add(said(lane, at - 0.5, [10_000] * 9 + [90_000], sent=9 * at), float(at))
    for lane in (0, 1):
        done = {"sent": 110, "acknowledged": 110, "acknowledged_at_end": 110, "ended_s": 12.0, "state": SENT}
        collector.add(said(lane, 12.5, [], **done), 13.0)
    return collector


def test_reports_of_workers_become_one_result(tmp_path: Path) -> None:
    collector = collected(tmp_path)
    assert collector.is_sent
    result = collector.result()
    collector.close()
    assert (result.events, result.acknowledged, result.alerts_seen, result.latencies) == (220, 220, 240, 240)
    assert result.latency_ms["p50"] == pytest.approx(10.0, rel=1e-3)
    assert result.latency_ms["p99"] == pytest.approx(90.0, rel=1e-3)
    assert result.arrival_ms["p50"] == pytest.approx(9.0, rel=1e-3)
    assert result.offered_rate == pytest.approx(20.0, rel=0.05)
    assert result.achieved_rate == pytest.approx(20.0, rel=0.1)
    assert [row["sent"] for row in result.seconds[:3]] == [18, 18, 18]
    assert histograms.read_log(tmp_path / HISTOGRAMS).get_total_count() == 240


def test_a_silent_worker_is_reported(tmp_path: Path) -> None:
    collector = Collector(LoadTestPlan(directory=str(tmp_path)), 3)
    collector.add(said(0, 1.0, []), 10.0)
    collector.add(said(1, 1.0, []), 14.0)
    assert collector.silent(15.0, 4.0) == [0, 2]
    collector.close()


def test_transactions_of_a_lost_worker_count_as_unsent(tmp_path: Path) -> None:
    collector = Collector(LoadTestPlan(directory=str(tmp_path)), 2)
    collector.add(said(0, 1.0, [], acknowledged=30), 1.0)
    collector.add(said(1, 1.0, [], state=SENT, acknowledged=110), 1.0)
    assert collector.result().unsent == 80
    collector.close()


def report_of(result: Result, **change: Any) -> LoadTestReport:
    report = LoadTestReport(reporting.Report(), result, Bounds(), Audit(220, 240, 0, 0, 0), ())
    return replace(report, **change)


def test_the_html_is_one_file_with_every_figure_and_loads_no_other(tmp_path: Path) -> None:
    collector = collected(tmp_path)
    result = collector.result()
    collector.close()
    result.lag = [(at / 2, at * 3) for at in range(20)]
    probes = (Probe(1_000.0, True, (), 12.0), Probe(2_000.0, False, ("latency",), 300.0))
    page = report_of(
        result, failures=("unsent: <5>",), peak=Peak(1_000.0, probes, "latency"), bounds=Bounds(p99_ms=50.0)
    ).as_html()
    assert page.count("<svg") == 6
    assert "unsent: &lt;5&gt;" in page
    assert '<span class="failed">' in page
    assert "240 alerts" in page
    # URLs that only name an XML namespace are allowed: browsers do not load them
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#)", page)
    assert not re.search(r"@import|url\((?!#)", page)


def test_the_json_holds_verdict_counts_and_reasons(tmp_path: Path) -> None:
    result = Result(asdict(LoadTestPlan()), 1, latency_ms={"p99": 12.0})
    result.write(tmp_path)
    assert Result.read(tmp_path) == result
    report = json.loads(json.dumps(report_of(result).as_json()))
    assert (report["verdict"], report["audit"]["missing"], report["latency_ms"]["p99"]) == ("passed", 0, 12.0)
    failed = report_of(result, failures=("slip",), audit=None).as_json()
    assert (failed["verdict"], failed["failures"], failed["audit"]) == ("failed", ["slip"], None)


def test_the_command_line_leaves_threads_and_sockets_as_they_are() -> None:
    from gevent import monkey

    from loadtests.locust_run import commands

    assert commands.app
    assert not monkey.is_module_patched("socket")


def test_locust_keeps_more_than_two_digits() -> None:
    assert [locust_stats.bucket(ms) for ms in (3.14159, 147.26, 3_432.4)] == [3.1, 147.3, 3_432]

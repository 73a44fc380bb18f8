"""`fraud demo` as a user runs it: live, over a file, with rollouts or labels, and after its job died."""

import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest
from harness.tools import needs
from thoroughness import only_thorough

from deploy.demo import state
from deploy.grafana import pictures
from deploy.local.child import Child
from deploy.local.launch import FRAUD
from loadtests.simulator import parquet
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from streaming_job.takeover.handover import TOOK_OVER

pytestmark = [pytest.mark.integration, pytest.mark.without_stack, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 420.0


class Demo(Child):
    """A demo in its own process, its output in a file."""

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        self.data_dir = data_dir
        command = [*FRAUD, "demo", "--data-dir", str(data_dir), *arguments]
        log = data_dir.with_suffix(".log")
        log.unlink(missing_ok=True)  # that of an earlier run on this directory
        super().__init__("the demo", command, log, cwd=ROOT)

    @property
    def decided(self) -> int:
        """The last printed count of decided transactions."""
        counts = re.findall(r"decided ([\d,]+) ", self.log)
        return int(counts[-1].replace(",", "")) if counts else 0

    def listens_on(self) -> list[tuple[str, str]]:
        """(address, program) of each TCP port that the demo's processes and servers have open."""
        result = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                family = [process, *process.parents()]
                if any(str(self.data_dir) in " ".join(member.cmdline()) for member in family):
                    ports = process.net_connections("tcp")
                    result += [
                        (port.laddr.ip, process.name()) for port in ports if port.status == psutil.CONN_LISTEN
                    ]
        return result

    def kill_job(self) -> None:
        """Kill the job's process with SIGKILL."""
        memory = state.load(self.data_dir)
        assert memory is not None
        os.kill(memory.children["job"].pid, signal.SIGKILL)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Function that starts demos on one directory; those that a failed test leaves running are stopped."""
    started: list[Demo] = []

    def start(*arguments: str) -> Demo:
        started.append(Demo(tmp_path / "demo", *arguments))
        return started[-1]

    yield start
    for running in started:
        if running.runs:
            running.ask_to_end()
            running.terminate(60)
    subprocess.run(
        [*FRAUD, "stack", "down", "--data-dir", str(tmp_path / "demo")],
        cwd=ROOT,
        check=False,
    )


def assert_right(report: dict[str, object]) -> None:
    wrong = {name: report[name] for name in ("missing", "duplicated", "unexpected", "different")}
    assert not any(wrong.values()), report["examples"]
    assert report["progress_problems"] == []


SMALL = ("--cards", "2000", "--rate", "300")


def test_transactions_become_verified_alerts(demo, tmp_path, wait_for):
    report = tmp_path / "out.json"
    run = demo(*SMALL, "--report", str(report), "--for", "8s")
    wait_for(lambda: run.decided > 500 or not run.runs, deadline_s=DEADLINE_S)
    assert run.runs, run.log
    ports = run.listens_on()
    assert len(ports) >= 5, ports  # the broker and its controller, Postgres, Connect, Spark, the sidecar
    assert {address.removeprefix("::ffff:") for address, _ in ports} <= {"127.0.0.1", "::1"}, ports
    assert run.exit_code(DEADLINE_S) == 0, run.log
    assert_complete(json.loads(report.read_text()))


def assert_complete(found: dict[str, object]) -> None:
    assert_right(found)
    assert found["dead_letters"] > 0
    assert found["repeated_transactions"] > 0
    assert found["profile_changes"] > 0
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert found["peak_memory_bytes"] < 6 * 2**30


@only_thorough
def test_a_dead_job_ends_the_demo_and_the_next_demo_continues(demo, tmp_path, wait_for):
    report = tmp_path / "out.json"
    small = (*SMALL, "--report", str(report))
    first = demo(*small)
    wait_for(lambda: first.decided > 500 or not first.runs, deadline_s=DEADLINE_S)
    assert first.runs, first.log
    decided = first.decided
    first.kill_job()
    assert first.exit_code(DEADLINE_S) == 1
    assert "the job ended unexpectedly" in first.log
    assert "job.log ends with" in first.log

    second = demo(*small, "--for", "15s")
    assert second.exit_code(DEADLINE_S) == 0, second.log
    assert "continuing it" in second.log
    result = json.loads(report.read_text())
    assert_complete(result)
    assert result["restarts"] == 1
    assert result["events"] > decided + 300 * 10
    run = state.load(second.data_dir)
    assert run.finished
    assert run.children == {}


@only_thorough
def test_a_demo_over_a_file_is_verified(demo, tmp_path):
    path = tmp_path / "transactions.parquet"
    stream = Stream(World.create(5, 1_000), 2.0, 1_700_000_000_000)
    parquet.write(stream.blocks(events=60_000), path)
    report = tmp_path / "out.json"
    run = demo("--replay", str(path), "--for", "120s", "--report", str(report))
    assert run.exit_code(DEADLINE_S) == 0, run.log
    result = json.loads(report.read_text())
    assert_right(result)
    # records that break the contract have no columns and are not in the file
    assert 59_000 < result["events"] <= 60_000
    assert result["alerts"] > 0
    assert result["p50_ms"] is None  # arrivals of years ago give no latency


def assert_labels_show_compromised_merchants(run: Demo, found: dict[str, Any]) -> None:
    assert_right(found)
    counts = found["merchants"]["all"]
    assert counts["alerted_before"] < 0.1 * counts["before"]
    assert counts["alerted_after"] > 0.8 * counts["after"] > 400
    assert f"first label of a fraud at {found['merchants']['followed']['merchant_id']}" in run.log


MOST_CARD_HOURS = 200
"""By docs/rollouts.md the trigger-happy model is stopped within so many card-hours."""


@only_thorough
@needs("prometheus")
def test_tour_of_rollouts_with_every_dashboard_full(demo, tmp_path, wait_for):
    """A better model is promoted, a bad one is stopped by its guard; meanwhile every panel has data."""
    report = tmp_path / "out.json"
    run = demo("--rollouts", "--with-prometheus", "--for", "600s", "--report", str(report))
    wait_for(lambda: "is rolled back after" in run.log or not run.runs, deadline_s=DEADLINE_S)
    assert run.runs, run.log
    links = dict(re.findall(r"^ {4}(\w+) +(http://\S+)$", run.log, re.MULTILINE))
    label_some(links["sidecar"])
    home = Path(os.environ.get("DASHBOARD_PICTURES", tmp_path))
    wait_for(
        lambda: pictures.draw_all(links["Prometheus"], home) == [], deadline_s=120, what="data for each panel"
    )
    os.kill(run.pid, signal.SIGINT)
    assert run.exit_code(DEADLINE_S) == 0, run.log
    result = json.loads(report.read_text())
    assert_right(result)
    assert result["shadow_alerts"] > 0
    better, bad = result["rollouts"].values()
    assert better["phase"] == "promoted"
    assert 0.05 < better["canary_decided"] / better["canary_transactions"] < 0.15
    assert (bad["phase"], bad["guard"]) == ("rolled_back", "alert_rate")
    assert bad["card_hours"] <= MOST_CARD_HOURS


def label_some(sidecar: str) -> None:
    """Send an analyst's verdicts on the newest alerts: the panels of precision need labels."""
    with urllib.request.urlopen(f"{sidecar}v1/alerts", timeout=30) as answer:
        alerts = json.load(answer)["alerts"]
    verdicts = ({"verdict": "fraud"}, {"verdict": "genuine", "reason": "travel"})
    labels = [
        {
            "card_id": alert["card_id"],
            "transaction_id": alert["transaction_id"],
            "kind": "verdict",
            **verdicts[at % 2],
        }
        for at, alert in enumerate(alerts)
    ]
    body, kind = json.dumps({"labels": labels}).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{sidecar}v1/labels", body, kind), timeout=30
    ) as answer:
        assert json.load(answer)["written"] == len(labels) > 5


@only_thorough
def test_a_better_model_is_replayed_compared_switched_to_and_taken_back(demo, tmp_path, wait_for):
    """The demo is killed once the replay's job decides: the next demo goes back, and audits everything."""
    report = tmp_path / "out.json"
    arguments = ("--replay-model", "--cards", "3000", "--rate", "200", "--report", str(report))
    first = demo(*arguments)
    wait_for(lambda: first.log.count(TOOK_OVER) == 1 or not first.runs, deadline_s=DEADLINE_S)
    assert first.runs, first.log
    first.kill_alone()
    second = demo(*arguments, "--for", "10s")
    assert second.exit_code(DEADLINE_S) == 0, second.log
    assert "the former job has gone on" in second.log
    assert_right(json.loads(report.read_text()))
    third = demo(*arguments)
    assert third.exit_code(DEADLINE_S) == 0, third.log
    result = json.loads(report.read_text())
    assert_right(result)
    compared = result["replay"]["compared"]
    assert sum(compared["differences"].values()) > 0
    assert all(TOOK_OVER in result["replay"][act] for act in ("switch", "back"))


@only_thorough
def test_labels_show_a_compromised_merchant(demo, tmp_path):
    """Of the frauds at a merchant, few are alerted before the merchant's first label, and most after it."""
    report = tmp_path / "out.json"
    run = demo("--merchant-labels", "--report", str(report))
    assert run.exit_code(DEADLINE_S) == 0, run.log
    assert_labels_show_compromised_merchants(run, json.loads(report.read_text()))


@only_thorough
def test_demo_of_compromised_merchants_continues_after_its_job_died(demo, tmp_path, wait_for):
    report = tmp_path / "out.json"
    first = demo("--merchant-labels", "--with-mlflow-ui")
    wait_for(lambda: first.decided > 20_000 or not first.runs, deadline_s=DEADLINE_S)
    assert first.runs, first.log
    page = re.search(r"MLflow +(http://\S+)", first.log)
    assert page is not None, first.log
    with urlopen(
        f"{page[1]}api/2.0/mlflow/model-versions/get?name=card-fraud&version=1", timeout=30
    ) as answer:
        version = json.loads(answer.read())["model_version"]
    assert "## Intended use" in version["description"]
    first.kill_job()
    assert first.exit_code(DEADLINE_S) == 1
    second = demo("--merchant-labels", "--report", str(report))
    assert second.exit_code(DEADLINE_S) == 0, second.log
    assert "continuing it" in second.log
    result = json.loads(report.read_text())
    assert result["restarts"] == 1
    assert_labels_show_compromised_merchants(second, result)

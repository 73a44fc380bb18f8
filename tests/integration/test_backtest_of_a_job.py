"""A backtest of a real job's archived log equals what that job decided later, merchant facts included.

archived log      START ---------- midnight ---------- end of the promises
the job           `everything`        | the candidate, promoted at midnight
the backtest      recalls its alerts  | the candidate
"""

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from harness import archives
from harness.labelled_installation import LabelledInstallation
from harness.local_client import LocalClient
from harness.log_world import DAY
from thoroughness import only_thorough
from typer.testing import CliRunner

from deploy import cli
from deploy.local.stack import Endpoints
from loadtests.faults.installation import trained
from loadtests.oracle import Record
from loadtests.simulator.rollouts import publish
from models.policy import Policy
from models.rollouts.events import installation
from service.app import create_app
from service.settings import ServiceSettings
from streaming_job import environment
from streaming_job.backtest.candidate import ROLLOUT
from streaming_job.backtest.labels import Labels
from streaming_job.backtest.log import ArchiveLog
from streaming_job.backtest.run import Task, merchant_facts, read_alerts
from streaming_job.backtest.settings import BacktestSettings
from streaming_job.backtest.tally import Tally
from streaming_job.backtest.window import Window, choose
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), only_thorough]

RECORDS = 350
CANDIDATE = Policy(0.0, 1, "review", escalate_after=3, cooldown_s=600)
ARCHIVED = (
    "transactions", "profiles", "labels", "chargebacks", "model_rollouts", "merchant_facts", "fraud_alerts",
    "suppressed_alerts", "dead_letters", "job_progress",
)  # fmt: skip


class Archived:
    """A job that has decided everything, and the archive of its topics."""

    def __init__(self, installed: LabelledInstallation, place: Path, midnight: int) -> None:
        self.installed, self.place, self.midnight = installed, place, midnight
        self.records = {field: installed.read(getattr(installed.topics, field)) for field in ARCHIVED}
        names = {field: getattr(installed.topics, field) for field in ARCHIVED}
        topics = {
            field: {
                partition: [archives.batch([(r.offset, r.timestamp, r.key, r.value) for r in part])]
                for partition, part in groupby(sorted(records, key=_place), lambda record: record.partition)
            }
            or {0: []}
            for field, records in self.records.items()
        }
        archives.write(place, topics, names=names)


def _place(record: Record) -> tuple[int, int]:
    return record.partition, record.offset


@pytest.fixture(scope="module")
def archived(
    stack: Endpoints,
    topic_names: Callable[[], Topics],
    wait_for: Callable[..., object],
    tmp_path_factory: pytest.TempPathFactory,
) -> Archived:
    directory = tmp_path_factory.mktemp("backtest")
    installed = LabelledInstallation(stack, topic_names(), directory, RECORDS)
    installed.send(RECORDS)
    sent = [record.timestamp for record in installed.read(installed.topics.transactions)]
    midnight = max(sent) // DAY * DAY
    assert sum(time >= midnight for time in sent) > 50
    model = trained(stack.mlflow_tracking_uri).ref
    events = installation(model, CANDIDATE, ROLLOUT, "test", midnight)
    publish(events, stack.bootstrap_servers, installed.topics.model_rollouts, timestamp_ms=midnight)
    job = installed.start()
    try:
        wait_for(lambda: sum(installed.lag().values()) == 0, deadline_s=300, what="no lag")
    finally:
        job.kill()
    return Archived(installed, directory / "archive", midnight)


@pytest.fixture
def settings(archived: Archived, monkeypatch: pytest.MonkeyPatch) -> BacktestSettings:
    for name, value in archived.installed.environment().items():
        monkeypatch.setenv(name, value)
    return environment.settings(BacktestSettings)


def test_each_alert_has_the_bytes_that_the_job_wrote_later(
    archived: Archived, settings: BacktestSettings
) -> None:
    log, job = ArchiveLog(str(archived.place)), settings.job()
    extents = log.extents(job.topics.transactions).values()
    window, history = choose(extents, job.limits.lateness_ms, 1, None)
    assert window.since == archived.midnight
    window = Window(window.since, min(window.until, merchant_facts(log, job)[1]))
    before = read_alerts(log, job.topics, window, history.begins).before()
    labels = Labels(job.topics).by_hash()
    task = Task(
        log, job, trained(settings.mlflow_tracking_uri).ref, CANDIDATE, window, history, labels, before
    )
    outcomes = [
        outcome for group in range(2) for _, outcome in task.outcomes(group, 2, Tally(window, labels))
    ]
    compared = 0
    for field in ("fraud_alerts", "suppressed_alerts"):
        decided = [alert.value for outcome in outcomes for alert in outcome.records[field]]
        later = [record.value or b"" for record in archived.records[field]]
        expected = _inside(window, later)
        assert _inside(window, decided) == expected
        compared += len(expected)
    assert compared > 50


def _inside(window: Window, alerts: list[bytes]) -> list[bytes]:
    """The alerts of the window's transactions, by partition and offset."""
    parsed = [(json.loads(alert), alert) for alert in alerts]
    inside = [
        (row["source"]["partition"], row["source"]["offset"], alert)
        for row, alert in parsed
        if window.since <= row["arrival_time"] < window.until
    ]
    return [alert for *_, alert in sorted(inside)]


def test_the_live_policy_changes_nothing_and_another_one_does(
    archived: Archived, settings: BacktestSettings, tmp_path: Path
) -> None:
    def report(*options: str) -> dict[str, Any]:
        path = tmp_path / "report.json"
        given = ["backtest", str(archived.place), "--days", "1", "--report", str(path), *options]
        done = CliRunner().invoke(cli.app, given, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        content: dict[str, Any] = json.loads(path.read_text())
        assert "alerts a day" in done.output
        return content

    same = report("--processes", "2")
    changes = {kind: counts["alerts"] for kind, counts in same["changes"].items()}
    assert changes == {"same": same["live"]["alerts"], "other_decision": 0, "new": 0, "gone": 0}
    assert same["backtest"] == same["live"]
    assert same["live"]["outcomes"]["fraud"] > 0
    assert same["history"]["transactions"] > 10
    assert same["history"]["whole"]

    page = tmp_path / "page.html"
    other = report("--threshold", "1", "--budget", "1", "--html", str(page))
    assert other["candidate"]["policy"]["threshold"] == 1.0
    assert other["candidate"]["policy"]["cooldown_s"] == CANDIDATE.cooldown_s
    assert other["backtest"]["alerts"] < other["live"]["alerts"]
    assert other["changes"]["gone"]["alerts"] > 0
    assert "Higher thresholds" in page.read_text()


def test_the_sidecar_reports_the_same_and_refuses_other_settings(
    archived: Archived,
    settings: BacktestSettings,
    tmp_path: Path,
    wait_for: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "report.json"
    given = ["backtest", str(archived.place), "--days", "1", "--report", str(path), "--threshold", "1"]
    assert CliRunner().invoke(cli.app, given, catch_exceptions=False).exit_code == 0
    service = ServiceSettings(
        bootstrap_servers=settings.bootstrap_servers, topics=settings.topics, archive=str(archived.place)
    )

    def ended() -> dict[str, Any]:
        asked = client.post("/v1/backtests", json={"threshold": 1, "days": 1})
        place = asked.headers["Location"]
        wait_for(lambda: client.get(place).json()["state"] != "running", deadline_s=120, what="its end")
        result: dict[str, Any] = client.get(place).json()
        return result

    with LocalClient(create_app(service)) as client:
        done = ended()
        assert done["report"] == json.loads(path.read_text()), done["error"]
        assert done["decided"] >= done["report"]["transactions"]["accepted"]
        assert "Higher thresholds" in client.get(f"/v1/backtests/{done['id']}/page").text
        monkeypatch.setenv("FRAUD_PARTITIONER", "crc32")
        refused = ended()
    assert refused["error"].startswith("FRAUD_PARTITIONER is crc32 here, but the job decided with murmur2")
    monkeypatch.setenv("FRAUD_JOB_ID", "another")
    other = CliRunner().invoke(cli.app, given)
    assert "no progress of the job another" in str(other.exception)

"""The demo's parts that need no servers."""

import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from deploy.demo import environment, state, summary, view, waiting
from deploy.demo.bring_up import begin
from deploy.demo.commands import demo as demo_command
from deploy.demo.feed import Feed
from deploy.demo.options import DemoError, Options
from deploy.demo.rollout_tour import GUARDS
from deploy.demo.state import Run
from deploy.demo.steps import Steps
from deploy.demo.view import Moment
from deploy.demo.watch import Percentiles
from deploy.local.files import replace_json
from deploy.local.processes import Server
from loadtests.audit.findings import Findings
from loadtests.audit.verify import AuditResult
from loadtests.oracle import Kind
from loadtests.rig.pace import Pace
from loadtests.rig.send import Sender
from loadtests.simulator.timeline import Records
from models.guards import policy
from streaming_job.log.clients import Address

pytestmark = pytest.mark.unit

ALERT = {
    "arrival_time": 1_780_000_200_000,
    "score": 0.9341,
    "decision": "decline",
    "card_id": "card-00012345",
    "amount": 1234.5,
    "currency": "EUR",
    "country": "DE",
    "rules": ["score", "blocked_card"],
    "reasons": [{"feature": "travel_speed", "value": 812.25, "contribution": 1.5}],
}
MOMENT = Moment(
    title="streaming",
    elapsed_s=75.2,
    sent=40_000,
    sent_per_s=500.2,
    decided=39_000,
    decided_per_s=499.0,
    lag=973,
    alerts=55,
    rules={"score": 34, "blocked_card": 24},
    declined_after_change=7,
    dead_letters={"too_late": 18, "wrong_type": 2},
    duplicates=77,
    late=32,
    recent=Percentiles(131.0, 284.0, 55),
    profile_changes=81,
    memory=3 * 2**30,
    commits=6_543,
    commits_per_s=87.4,
    cards=49_828,
    latest=[ALERT],
)


def run_of(options: Options) -> Run:
    return Run(options.data_dir, options.story(), 1_780_000_200.0)


def test_a_run_and_its_processes_are_stored(tmp_path: Path):
    run = run_of(Options(tmp_path, seed=3))
    run.children["job"] = Server(4711, 12.5, "mark")
    run.save()
    assert state.load(tmp_path) == run


def test_an_empty_directory_has_no_stored_run(tmp_path: Path):
    assert state.load(tmp_path) is None


def test_a_damaged_record_of_a_run_is_reported(tmp_path: Path):
    (tmp_path / state.FILE).write_text('{"story": ')
    with pytest.raises(DemoError, match="damaged; start with --fresh"):
        state.load(tmp_path)


def test_a_damaged_record_does_not_hinder_a_fresh_start(tmp_path: Path):
    (tmp_path / state.FILE).write_text('{"story": ')
    (tmp_path / "leftover").touch()
    written = io.StringIO()
    run = begin(Options(tmp_path, fresh=True), Steps(Console(file=written, width=200)))
    assert "was killed and is dropped: starting from the beginning" in written.getvalue()
    assert state.load(tmp_path) == run
    assert not (tmp_path / "leftover").exists()
    (tmp_path / state.FILE).write_text('{"story": ')
    with pytest.raises(DemoError, match="damaged; start with --fresh"):
        begin(Options(tmp_path), Steps(Console(file=written)))


def test_two_demos_do_not_share_a_directory(tmp_path: Path):
    with (
        state.exclusive(tmp_path),
        pytest.raises(DemoError, match="another demo runs"),
        state.exclusive(tmp_path),
    ):
        pass


def test_clearing_leaves_nothing_but_the_lock(tmp_path: Path):
    with state.exclusive(tmp_path):
        run_of(Options(tmp_path)).save()
        (tmp_path / "kafka" / "data").mkdir(parents=True)
        (tmp_path / "kafka" / "data" / "log").write_text("x")
        state.clear(tmp_path)
        assert {entry.name for entry in tmp_path.iterdir()} <= state.LOCKS


def test_a_directory_of_another_program_is_not_cleared(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(DemoError, match="not made by a demo"):
        state.clear(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_another_seed_gives_another_run(tmp_path: Path):
    run = run_of(Options(tmp_path, seed=1))
    assert state.differences(run, Options(tmp_path, seed=1, rate=9_000)) == []
    assert state.differences(run, Options(tmp_path, seed=2)) == ["--seed 1, not 2"]


def test_servers_of_the_caller_are_ignored(monkeypatch: pytest.MonkeyPatch):
    kept = {"FRAUD_IVY_SETTINGS": "mirror.xml", "FRAUD_DRIVER_JAVA_OPTIONS": ""}
    theirs = {"FRAUD_BOOTSTRAP_SERVERS": "bank:9092", "FRAUD_TOPICS__TRANSACTIONS": "theirs"}
    monkeypatch.setattr(os, "environ", {**theirs, **kept})
    environment.forget_callers_settings()
    assert os.environ == kept


def test_the_screen_shows_the_important_figures():
    console = Console(width=128, file=io.StringIO(), record=True)
    console.print(view.screen(MOMENT, {"sidecar": "http://127.0.0.1:8000/"}, "Ctrl-C ends"))
    text = console.export_text()
    for words in (
        "streaming", "01:15", "http://127.0.0.1:8000/", "500/s", "973", "131 ms", "284 ms", "49,828",
        "6,543 (87/s)", "3.0 GiB", "card-00012345", "1,234.50 EUR", "0.934", "decline", "score, blocked_card",
        "travel_speed 812.2",
    ):  # fmt: skip
        assert words in text


def test_the_status_line_has_the_same_figures():
    line = view.line(MOMENT)
    assert "\n" not in line
    for words in ("500/s", "39,000", "lag 973", "alerts 55", "dead letters 20", "p50 131 ms p99 284 ms"):
        assert words in line


@pytest.mark.parametrize(
    ("groups", "loaded"),
    [
        ({}, False),
        ({0: {}}, False),
        ({0: {}, 1: {}}, True),
        ({0: {"profiles": 0}, 1: {"profiles": 3}}, False),
        ({0: {"profiles": 0}, 1: {"profiles": 0}}, True),
    ],
)
def test_tables_are_loaded_when_every_key_group_reports_it(groups: dict[int, dict[str, int]], loaded: bool):
    newest = {group: {"key_groups": 2, "table_lag": lag} for group, lag in groups.items()}
    assert waiting.have_loaded_the_tables(newest) == loaded


def test_percentiles_without_values_are_unknown():
    assert Percentiles.of([]) is None
    hundred = [1_000 * number for number in range(1, 101)]
    assert Percentiles.of(hundred) == Percentiles(
        pytest.approx(50, rel=1e-3), pytest.approx(99, rel=1e-3), 100
    )


def test_the_report_has_the_documented_fields(tmp_path: Path):
    kinds, letters = Counter({Kind.PASSED: 7, Kind.ALERT: 2}), Counter({"too_late": 3})
    verdict = AuditResult(Findings(missing=1), kinds, letters, Counter(fraud_alerts=2))
    measured = summary.Measurement(
        Percentiles(130.04, 280.0, 9), 499.96, 60.0, 2**31, {"score": 2}, 1, 120, 1
    )
    report = summary.report(verdict, measured)
    assert list(report)[:9] == [
        "events", "alerts", "dead_letters", "missing", "duplicated", "unexpected",
        "p50_ms", "p99_ms", "events_per_s",
    ]  # fmt: skip
    assert list(report.values())[:9] == [9, 2, 3, 1, 0, 0, 130.0, 280.0, 500.0]
    assert not verdict.is_clean
    replace_json(tmp_path / "out.json", report)
    assert json.loads((tmp_path / "out.json").read_text())["peak_memory_bytes"] == 2**31


def test_guards_of_the_tour_are_whole_and_wider_than_the_usual_ones():
    records, usual = policy.read(GUARDS), policy.read(None)
    assert records.min_card_hours < usual.min_card_hours
    assert [rule.NAME for rule in records.rules] == ["alert_rate", "failures"]


@pytest.mark.parametrize("tour", ["rollouts", "replay_model"])
def test_tour_over_a_file_is_refused(tmp_path: Path, tour: str):
    (tmp_path / "t.parquet").touch()
    with pytest.raises(DemoError, match=f"--{tour.replace('_', '-')} needs live traffic"):
        demo_command(replay=tmp_path / "t.parquet", **{"rollouts": False, "replay_model": False, tour: True})


def test_two_tours_at_once_are_refused():
    with pytest.raises(DemoError, match="--rollouts and --replay-model are two tours"):
        demo_command(replay=None, rollouts=True, replay_model=True)


@pytest.mark.parametrize(
    "other", [{"replay": ...}, {"rollouts": True}, {"replay_model": True}, {"speed": "2"}]
)
def test_the_demo_of_compromised_merchants_has_traffic_of_its_own(tmp_path: Path, other: dict[str, Any]):
    (tmp_path / "t.parquet").touch()
    other = {name: tmp_path / "t.parquet" if name == "replay" else value for name, value in other.items()}
    alone = {"replay": None, "rollouts": False, "replay_model": False, "speed": "max"}
    with pytest.raises(DemoError, match="--merchant-labels brings its own traffic"):
        demo_command(**{**alone, "merchant_labels": True, **other})


def test_demo_without_tour_is_not_continued_with_one(tmp_path: Path):
    options = Options(tmp_path, rollouts=True)
    old = {**options.story(), "rollouts": False}
    assert state.differences(Run(tmp_path, old, 0.0), options) == ["--rollouts False, not True"]
    assert state.differences(Run(tmp_path, old, 0.0), Options(tmp_path)) == []


def test_a_load_that_ends_with_any_error_says_so() -> None:
    def records() -> Iterator[Records]:
        yield from ()
        raise OSError("the replayed file has changed")

    load = Feed(Sender(Address("127.0.0.1:1")), records(), Pace.live(), None, "transactions")
    load.start()
    with pytest.raises(OSError, match="has changed"):
        load.stop()

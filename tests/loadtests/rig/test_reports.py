"""The report of a measuring command, whatever it measures."""

import json
from pathlib import Path

import pytest

from loadtests.rig import report

pytestmark = pytest.mark.unit


def test_each_report_says_what_ran_where_under_which_load(tmp_path: Path) -> None:
    begun = report.Report()
    to = tmp_path / "out.json"
    report.write(to, begun.of({"figures": [1]}), {".html": "<p>", "-latency.svg": "<svg>"})
    written = json.loads(to.read_text())
    assert written["command"].split()[0] == "fraud"
    assert written["figures"] == [1]
    assert written["machine"]["cores"] > 0
    assert {"python", "numpy", "pyspark"} <= written["versions"].keys()
    assert len(written["load_average"]) == len(written["load_average_after"]) == 3
    assert (tmp_path / "out.html").read_text() == "<p>"
    assert (tmp_path / "out-latency.svg").read_text() == "<svg>"


def test_a_place_where_nothing_can_be_written_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        report.ReportError, match=r"none/out\.json cannot be written .*; give a writable place"
    ):
        report.write(tmp_path / "none" / "out.json", {})


def test_without_a_file_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report.write(None, report.Report().of({}), {".html": "<p>"})
    assert not list(tmp_path.iterdir())


def test_rows_are_shown_below_a_title_and_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    report.show("fraud bench x", [("p99", "3", "", "ms", "")], ("", "median", "elapsed", "unit", ""))
    report.show("load test passed", [("offered", "100/s")])
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("fraud bench x", "median", "p99", "load test passed", "100/s"))

"""`fraud compare` from end to end: every engine writes the same alerts, each once, although it is killed."""

import json
import subprocess
from pathlib import Path

import pytest
from harness.tools import needs
from thoroughness import only_thorough

from deploy.local.launch import FRAUD
from loadtests.compare.engines import FLOOR, VARIANTS

pytestmark = [pytest.mark.integration, pytest.mark.without_stack, only_thorough, pytest.mark.timeout(1_800)]


@needs("javac")
def test_all_engines_agree_on_every_alert(tmp_path: Path) -> None:
    report = tmp_path / "compare.json"
    answer = subprocess.run(
        [*FRAUD, "compare", "--rate", "200", "--for", "20s", "--warm-up", "5s",
         "--kill", "10s", "--backlog", "10000", "--prime", "5000", "--cards", "2000",
         "--data-dir", str(tmp_path / "data"), "--report", str(report)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    content = json.loads(report.read_text())
    assert [row["engine"] for row in content["engines"]] == [variant.name for variant in VARIANTS]
    first = content["engines"][0]
    assert first["alerts"] > 50
    for row in content["engines"]:
        if row["engine"] != FLOOR:
            assert row["alerts"] == first["alerts"]
        assert row["missing"] + row["unexpected"] + row["duplicated"] == 0
        assert row["agrees"]
        assert row["latency_ms"]["p50"] > 0
        assert row["backlog_per_s"] > 0
        assert row["recovery_s"] > 0
    assert report.with_suffix(".md").read_text().count("\n| ") == len(VARIANTS)
    for plot in ("latency", "throughput"):
        assert (tmp_path / f"compare-{plot}.svg").read_text().startswith("<svg")

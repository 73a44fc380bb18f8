"""Locust started by hand, without the command that checks the options first."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit
LOCUSTFILE = Path(__file__).parents[3] / "loadtests" / "locustfile.py"


def test_an_impossible_plan_ends_locust_and_its_result_says_why(tmp_path: Path) -> None:
    options = ["--headless", "--skip-log-setup", "--tx-rate", "0", "--tx-directory", str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), *options],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stderr
    assert "error: rate, length and speed must be above 0" in ended.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["plan"]["rate"], result["workers"]) == (0, 0)
    assert result["fault"].startswith("rate, length and speed must be above 0")

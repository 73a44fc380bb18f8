"""The start of Spark before a card is explained: its lines, and a JVM that does not start."""

import os
import subprocess
from pathlib import Path

import pytest

from deploy.local.launch import FRAUD
from streaming_job.explain import STDERR, _quiet_jvm

pytestmark = pytest.mark.unit
LINES = b"WARNING: Using incubator modules"


def test_lines_of_a_start_are_shown_only_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with _quiet_jvm():
        os.write(STDERR, LINES)
    os.write(STDERR, b"error: no epoch")
    assert capfd.readouterr().err == "error: no epoch"

    def start() -> None:
        with _quiet_jvm():
            os.write(STDERR, LINES)
            raise OSError("no Java")

    with pytest.raises(OSError, match="no Java"):
        start()
    assert capfd.readouterr().err == LINES.decode()


def test_a_missing_java_gives_one_line_that_says_so(tmp_path: Path) -> None:
    command = [*FRAUD, "explain-card", "card-1", "--checkpoint", str(tmp_path)]
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: Spark does not start (")
    assert "Traceback" not in done.stderr

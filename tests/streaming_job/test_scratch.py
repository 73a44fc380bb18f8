"""What a killed job leaves on the disk is gone with the next start, what a running one has is not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_job import scratch

pytestmark = pytest.mark.unit


def filled(directory: Path) -> Path:
    (directory / "blocks").mkdir(parents=True)
    (directory / "blocks" / "0").write_bytes(b"block")
    return directory


def test_only_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as dead:
        pass
    of_dead = filled(tmp_path / "tmp" / str(dead.pid))
    of_living = filled(tmp_path / "tmp" / str(os.getppid()))
    namesakes = filled(tmp_path / "tmp" / str(os.getpid()))
    mine = scratch.prepare(tmp_path)
    assert mine == namesakes
    assert list(mine.iterdir()) == []
    assert not of_dead.exists()
    assert (of_living / "blocks" / "0").read_bytes() == b"block"

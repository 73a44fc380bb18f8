"""Processes of the compared engines."""

from pathlib import Path

import psutil
import pytest

from loadtests.compare.engines import Engine
from loadtests.compare.errors import CompareError

pytestmark = pytest.mark.unit


def test_children_of_an_engine_that_has_ended_are_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Engine(["sh", "-c", "sleep 600 & echo $!"], {}, log) as engine:
        psutil.Process(engine.pid).wait(10)
        child = psutil.Process(int(log.read_text()))
        assert child.is_running()
        with pytest.raises(CompareError, match="the engine ended"):
            engine.check()
    assert not child.is_running()

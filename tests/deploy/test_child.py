"""Child processes: their end, and the end of all that they started."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from deploy.local import launch
from deploy.local.child import Child, stop
from deploy.local.errors import ProcessError

pytestmark = pytest.mark.unit

DEAF = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
OBEYS = """
import signal, sys
def end(*_):
    print('saved', flush=True)
    sys.exit(7)
signal.signal(15, end)
print('ready', flush=True)
signal.pause()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "child.log"


def python(code: str, log: Path) -> Child:
    child = Child("the child", [sys.executable, "-c", code], log)
    child.wait_until(lambda: "ready" in child.log, 20)
    return child


def grandchild(child: Child) -> psutil.Process:
    child.wait_until(lambda: child.log.endswith("\n"), 20)
    return psutil.Process(int(child.log))


def ended(processes: Sequence[psutil.Process]) -> bool:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                return False
    return True


def test_all_that_a_child_started_ends_with_its_context(log: Path) -> None:
    with Child("the child", ["sh", "-c", "sleep 600 & echo $!; wait"], log) as child:
        started = grandchild(child)
        assert not ended([started])
        assert child.runs
    assert ended([started])
    assert child.ended_with == -9


def test_what_a_child_that_has_ended_started_is_killed_all_the_same(log: Path) -> None:
    with Child("the engine", ["sh", "-c", "sleep 600 & echo $!"], log) as child:
        assert child.exit_code(10) == 0
        started = psutil.Process(int(child.log))
        assert not ended([started])
        with pytest.raises(ProcessError, match=rf"the engine ended; its log .*\n *{started.pid}"):
            child.check()
    assert ended([started])


def test_a_child_killed_alone_leaves_behind_what_it_started(log: Path) -> None:
    with Child("the child", ["sh", "-c", "sleep 600 & echo $!; wait"], log) as child:
        started = grandchild(child)
        assert child.kill_alone() == [started]
        assert not child.runs
        assert not ended([started])
    assert ended([started])


def test_a_child_that_ends_gracefully_may_finish_its_work(log: Path) -> None:
    with python(OBEYS, log) as child:
        assert child.terminate(20) == 7
    assert child.log == "ready\nsaved\n"


def test_a_deaf_child_is_reported_and_can_still_be_stopped(log: Path) -> None:
    with python(DEAF, log) as child:
        with pytest.raises(ProcessError, match="the child does not end within 0 s"):
            child.terminate(0.1)
        assert child.runs
        other = python(OBEYS, log.with_name("other.log"))
        stop([child, other], 0.5)
        assert (child.ended_with, other.ended_with) == (-9, 7)


def test_a_child_that_ends_before_it_is_ready_is_reported_with_the_end_of_its_log(log: Path) -> None:
    with (
        Child("the server", [sys.executable, "-c", "print('no room on the moon')"], log) as child,
        pytest.raises(ProcessError, match=r"(?s)the server ended while it started.*no room on the moon"),
    ):
        child.wait_until(lambda: False, 20)


def test_a_child_gets_variables_and_a_directory_and_adds_to_its_log(log: Path, tmp_path: Path) -> None:
    code = "import os; print(os.environ['CITY'], os.environ['HOME'] != '', os.getcwd())"
    for city in ("Bern", "Basel"):
        command = [sys.executable, "-c", code]
        assert Child("the child", command, log, {"CITY": city}, cwd=tmp_path).exit_code(20) == 0
    assert log.read_text() == f"Bern True {tmp_path}\nBasel True {tmp_path}\n"


def test_a_tools_lines_arrive_while_it_runs(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    code = (
        "import os, sys, time\nprint('begun', flush=True)\n"
        f"while not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n"
        "print('ended', file=sys.stderr); sys.exit(3)"
    )
    lines: list[str] = []

    def each(line: str) -> None:
        lines.append(line)
        go_on.touch()  # without this the tool would never end

    assert launch.run([sys.executable, "-c", code], each) == 3
    assert lines == ["begun\n", "ended\n"]

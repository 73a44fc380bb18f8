"""The ledger of long test runs: what an interrupted run leaves, and what the next run leaves out."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ledger

pytestmark = pytest.mark.unit
FILE = """
import os, signal

def test_first(): pass
def test_second(): assert not os.path.exists("broken")
def test_third():
    if os.path.exists("interrupt"): os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "test_three.py").write_text(FILE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "README.md").write_text("words")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    return tmp_path


def run(checkout: Path, *arguments: str) -> tuple[int, dict[str, int]]:
    """Run the checkout's tests; return the exit status and how many tests had which result."""
    command = [sys.executable, "-m", "pytest", "-p", "harness.ledger", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop(ledger.READ_TO, None)
    ended = subprocess.run(
        [*command, "--ledger", "ledger.jsonl", *arguments],
        cwd=checkout, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    last = ended.stdout.splitlines()[-1] if ended.stdout else ""
    return ended.returncode, {
        name: int(n) for n, name in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])
    }


def test_a_killed_run_is_resumed_at_the_test_that_did_not_end(checkout: Path) -> None:
    (checkout / "interrupt").touch()
    assert run(checkout)[0] == -signal.SIGKILL
    (checkout / "interrupt").unlink()
    assert run(checkout, "--resume") == (0, {"passed": 1, "deselected": 2})


@pytest.mark.parametrize("processes", [(), ("--numprocesses", "2")])
def test_what_failed_is_repeated(checkout: Path, processes: tuple[str, ...]) -> None:
    (checkout / "broken").touch()
    assert run(checkout, *processes) == (1, {"failed": 1, "passed": 2})
    (checkout / "broken").unlink()
    assert run(checkout, "--resume", *processes)[1]["passed"] == 1
    assert [line.outcome for line in ledger.read(checkout / "ledger.jsonl")].count("passed") == 3


def test_changed_sources_are_tested_anew_and_changed_documents_are_not(checkout: Path) -> None:
    run(checkout)
    (checkout / "README.md").write_text("other words")
    assert run(checkout, "--resume")[1] == {"deselected": 3}
    (checkout / "test_three.py").write_text(FILE + "\n")
    assert run(checkout, "--resume")[1] == {"passed": 3}


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    line = ledger.Line(test="a.py::b", outcome="passed", seconds=1, at="2026-11-26", commit="c", sources="d")
    (tmp_path / "ledger").write_text(line.model_dump_json() + "\n" + line.model_dump_json()[:20])
    assert ledger.read(tmp_path / "ledger") == [line]


def test_the_page_has_the_newest_result_of_each_test() -> None:
    def line(test: str, outcome: str, day: int) -> ledger.Line:
        return ledger.Line(
            test=test, outcome=outcome, seconds=2, at=f"2026-11-0{day}", commit=f"c{day}", sources=""
        )

    lines = [
        line("a.py::x", "failed", 1),
        line("a.py::y", "passed", 1),
        line("a.py::x", "passed", 2),
        line("b.py::x", "failed", 3),
    ]
    rows = ledger.page(lines, {"a.py", "c.py"}).splitlines()[-3:]
    assert rows[0] == "| a.py | 2 | 0 | 0 | 4 | 2026-11-01 to 2026-11-02 | c1 c2 |"
    assert rows[1] == "| c.py | 0 | 0 | 0 | 0 | never |  |"
    assert rows[2] == "| all other files | 0 | 1 | 0 | 2 | 2026-11-03 | c3 |"
    # on another machine, whose ledger lacks the file
    kept = ledger.page([line("c.py::x", "passed", 1)], {"a.py", "c.py"}, "\n".join(rows)).splitlines()[-3:]
    assert [kept[0], kept[2]] == [rows[0], rows[2]]
    assert kept[1] == "| c.py | 1 | 0 | 0 | 2 | 2026-11-01 | c1 |"

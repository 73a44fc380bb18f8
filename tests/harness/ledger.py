"""Ledger of a long test run: a line for each test that ended, so that an interrupted run can be resumed.

`pytest --ledger FILE` adds the lines; with `--resume`, tests that passed on the same sources are left out.
`python -m harness.ledger FILE PAGE` writes the newest results of each test file as a Markdown page.
"""

import hashlib
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from pydantic import BaseModel

READ_TO = "LEDGER_READ_TO"
"""Variable with the ledger's size, bytes, at the run's start: all processes leave out the same tests."""
PAGE = """# Results of the thorough tests

`make test-thorough` writes this page from its ledger. For each test file it shows the newest result of each
test, when and at which commits these ran, and the sum of their times. A file of which the ledger has nothing,
because other files ran or on another machine, keeps its row. [Thorough tests](thorough-tests.md) says what
the files test.

| tests | passed | failed | skipped | time, s | run at | commits |
|---|---:|---:|---:|---:|---|---|
"""


OTHERS = "all other files"


class Line(BaseModel):
    """The result of one test."""

    test: str
    outcome: str
    """passed, failed or skipped."""
    seconds: float
    at: str
    """End, UTC, ISO 8601."""
    commit: str
    sources: str
    """Digest of the sources; documents are not among them."""

    @property
    def file(self) -> str:
        """Path of the test file."""
        return self.test.partition("::")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run that can be resumed."""
    group = parser.getgroup("ledger")
    group.addoption("--ledger", help="file to which the result of each test is added")
    group.addoption(
        "--resume", action="store_true", help="leave out what passed on these sources, by the ledger"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Write a ledger if the run has one."""
    if config.getoption("--ledger"):
        config.pluginmanager.register(Ledger(config))


class Ledger:
    """Pytest plugin that writes the ledger, and leaves out what it has as passed."""

    def __init__(self, config: pytest.Config) -> None:
        self._root, self._path = config.rootpath, Path(config.getoption("--ledger"))
        self._resume = bool(config.getoption("--resume"))
        self._writes = not hasattr(config, "workerinput")
        if self._writes:  # worker processes inherit the variable
            size = self._path.stat().st_size if self._path.exists() else 0
            os.environ[READ_TO] = str(size)
        self._sources = digest(self._root)
        self._commit = _git(self._root, "rev-parse", "--short", "HEAD").strip()
        self._running: dict[str, list[pytest.TestReport]] = defaultdict(list)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the tests that passed."""
        if not self._resume:
            return
        newest = {line.test: line for line in read(self._path, int(os.environ[READ_TO]))}
        done = {
            test
            for test, line in newest.items()
            if line.outcome == "passed" and line.sources == self._sources
        }
        left_out = [item for item in items if item.nodeid in done]
        items[:] = [item for item in items if item.nodeid not in done]
        config.hook.pytest_deselected(items=left_out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the line of a test after its teardown."""
        reports = self._running[report.nodeid]
        reports.append(report)
        if not self._writes or report.when != "teardown":
            return
        outcomes = {report.outcome for report in reports}
        line = Line(
            test=report.nodeid,
            outcome=next(name for name in ("failed", "skipped", "passed") if name in outcomes),
            seconds=round(sum(report.duration for report in reports), 1),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=self._commit,
            sources=self._sources,
        )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(orjson.dumps(line.model_dump()) + b"\n")
        del self._running[report.nodeid]


def digest(root: Path) -> str:
    """Digest of all files under version control but documents, with their uncommitted changes."""
    result = hashlib.sha256()
    for name in _git(root, "ls-files").splitlines():
        if not name.endswith(".md") and (root / name).is_file():
            result.update(name.encode() + hashlib.sha256((root / name).read_bytes()).digest())
    return result.hexdigest()[:16]


def read(path: Path, size: int | None = None) -> list[Line]:
    """Read the first `size` bytes of a ledger, or all; a last line that was cut off is left out."""
    content = path.read_bytes()[:size] if path.exists() else b""
    return [Line.model_validate_json(line) for line in content.split(b"\n")[:-1]]


def page(lines: Iterable[Line], thorough: Iterable[str], before: str = "") -> str:
    """Render the results, one row for each file of `thorough` and one for all other files.

    Args:
        before: the page so far, whose rows stay for files without lines.
    """
    kept = {row.split(" | ")[0].removeprefix("| "): row for row in before.splitlines() if row[:2] == "| "}
    rows: dict[str, list[Line]] = {file: [] for file in (*sorted(thorough), OTHERS)}
    for line in {line.test: line for line in lines}.values():
        rows[line.file if line.file in rows else OTHERS].append(line)
    return PAGE + "".join(
        f"{kept[file]}\n" if file in kept and not of else f"| {file} | {_cells(of)} |\n"
        for file, of in rows.items()
    )


def _cells(lines: list[Line]) -> str:
    if not lines:
        return "0 | 0 | 0 | 0 | never | "
    counts = [sum(line.outcome == name for line in lines) for name in ("passed", "failed", "skipped")]
    days = sorted({line.at[:10] for line in lines})
    first_and_last = " to ".join(dict.fromkeys((days[0], days[-1])))
    commits = " ".join(dict.fromkeys(line.commit for line in sorted(lines, key=lambda line: line.at)))
    seconds = sum(line.seconds for line in lines)
    return " | ".join([*map(str, counts), f"{seconds:,.0f}", first_and_last, commits])


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def main(ledger: str, target: str) -> None:
    """Write the page of a ledger."""
    tests = Path(__file__).parents[1]
    thorough = {
        str(path.relative_to(tests.parent))
        for path in tests.rglob("test_*.py")
        if "thoroughness import" in path.read_text()
    }
    file = Path(target)
    file.write_text(page(read(Path(ledger)), thorough, file.read_text() if file.exists() else ""))


if __name__ == "__main__":
    main(*sys.argv[1:])

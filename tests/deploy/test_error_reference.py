"""docs/errors.md names every reason and every error."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from feature_store.errors import FraudError
from streaming_job.contracts import Reason

pytestmark = pytest.mark.unit

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
PACKAGES = ("feature_store", "models", "streaming_job", "service", "loadtests", "deploy")


def subclasses(error: type[FraudError]) -> set[type[FraudError]]:
    """An error and all of its subclasses."""
    return {error, *(subclass for child in error.__subclasses__() for subclass in subclasses(child))}


def rows(heading: str) -> list[list[str]]:
    """Cells of a section's table, without its head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_every_reason_is_listed_once() -> None:
    assert sorted(row[0] for row in rows("Dead letters")) == sorted(f"`{reason.value}`" for reason in Reason)
    assert all(len(row) == 3 and all(row) for row in rows("Dead letters"))


def test_every_error_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # otherwise importing locust replaces sockets and threads in this process, which runs the later tests, too
    monkeypatch.setenv("LOCUST_SKIP_MONKEY_PATCH", "1")
    for package in PACKAGES:
        result = importlib.import_module(package)
        for module in pkgutil.walk_packages(result.__path__, f"{package}."):
            importlib.import_module(module.name)
    ours = re.compile(rf"^({'|'.join(PACKAGES)})\.")
    known = {error for error in subclasses(FraudError) - {FraudError} if ours.match(error.__module__)}
    listed = [(row[1].strip("`"), row[0].strip("`")) for row in rows("Errors")]
    missing = {(error.__module__, error.__name__) for error in known}.symmetric_difference(listed)
    assert not missing, f"docs/errors.md and the packages differ in: {sorted(missing)}"
    assert len(listed) == len(known)
    assert all(len(row) == 4 and all(row) for row in rows("Errors"))

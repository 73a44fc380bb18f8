"""Tests that need a program: skipped without it, failed if the installation promises it."""

from collections.abc import Iterator

import pytest
from harness import tools

pytestmark = pytest.mark.unit


class Marked:
    """A test with one mark."""

    def __init__(self, mark: pytest.MarkDecorator) -> None:
        self._mark = mark.mark

    def iter_markers(self, name: str) -> Iterator[pytest.Mark]:
        if self._mark.name == name:
            yield self._mark


def test_a_missing_program_skips_and_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(tools, "find", lambda program: None)
    monkeypatch.setattr(tools, "REQUIRED", frozenset())
    with pytest.raises(pytest.skip.Exception, match="needs promtool: apt install prometheus"):
        tools.skip_without_tools(Marked(tools.needs("promtool")))


def test_a_missing_program_that_is_required_fails(monkeypatch):
    monkeypatch.setattr(tools, "find", lambda program: None)
    monkeypatch.setattr(tools, "REQUIRED", frozenset({"promtool"}))
    with pytest.raises(pytest.fail.Exception, match="promtool is in REQUIRED_TOOLS"):
        tools.skip_without_tools(Marked(tools.needs("promtool")))


def test_a_test_whose_programs_are_there_runs(monkeypatch):
    monkeypatch.setattr(tools, "find", lambda program: f"/usr/bin/{program}")
    tools.skip_without_tools(Marked(tools.needs("chromium", "chromedriver")))


def test_a_program_without_a_source_is_refused():
    with pytest.raises(ValueError, match="unheard"):
        tools.needs("unheard")

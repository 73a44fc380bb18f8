"""Game days: the symptom is observed, the remedy helps, the audit is clean, the page shows the result."""

import re
from pathlib import Path

import pytest
from thoroughness import only_thorough

from loadtests.gamedays.catalogue import DAYS
from loadtests.gamedays.commands import run_all

pytestmark = [pytest.mark.chaos, pytest.mark.without_stack, pytest.mark.timeout(900)]


@only_thorough
def test_two_game_days_on_one_stack(tmp_path: Path) -> None:
    page = tmp_path / "gamedays.md"
    page.write_text("# Game days\n")
    days = [DAYS["lag_growing"], DAYS["champion_fails"]]
    run_all(days, tmp_path / "home", page)
    sections = page.read_text().split("\n## ")[1:]
    assert [text.splitlines()[0] for text in sections] == [day.name for day in days]
    for text in sections:
        assert re.search(r"The audit: \d+ transactions, \d+ alerts: 0 missing, 0 duplicated", text)

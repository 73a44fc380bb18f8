"""Game days: the symptom is observed, the remedy helps, the audit is clean, the page shows the result."""

import re
from pathlib import Path

import pytest
from thoroughness import only_thorough

from loadtests.gamedays.catalogue import DAYS
from loadtests.gamedays.commands import run_all
from loadtests.gamedays.page import COLUMNS

pytestmark = [pytest.mark.chaos, pytest.mark.without_stack, pytest.mark.timeout(900)]


@only_thorough
def test_two_game_days_on_one_stack(tmp_path: Path) -> None:
    page = tmp_path / "measurements.md"
    page.write_text(COLUMNS)
    days = [DAYS["lag_growing"], DAYS["champion_fails"]]
    run_all(days, tmp_path / "home", page)
    rows = page.read_text().removeprefix(COLUMNS).splitlines()
    assert {row.split("`")[1] for row in rows} == {day.name for day in days}
    for row in rows:
        assert re.search(r"; \d+ transactions, \d+ alerts: 0 missing, 0 duplicated", row)

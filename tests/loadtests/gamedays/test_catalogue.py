"""The game days use existing codes, checks, metrics and rules, and the runbook names them."""

import re
from pathlib import Path

import pytest
from harness.promql import VALUES, exported
from harness.promtool import all_rules
from typer.testing import CliRunner

from deploy.cli import app
from loadtests.gamedays.catalogue import DAYS
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.page import fixed_cells, plan
from loadtests.gamedays.run import AUDITED
from service.health.codes import REGISTRY
from service.health.readiness import NAMES

pytestmark = pytest.mark.unit
DOCS = Path(__file__).parents[3] / "docs"
ENTRIES = dict(
    re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", (DOCS / "runbook.md").read_text(), re.MULTILINE | re.DOTALL)
)
PAGE = (DOCS / "measurements.md").read_text()
ALERTS = {rule["alert"] for rule in all_rules() if "alert" in rule}
every_day = pytest.mark.parametrize("day", DAYS.values(), ids=DAYS)


def gamedays_of(entry: str) -> set[str]:
    """Names of game days in the last paragraph of a runbook's entry."""
    _, _, names = entry.partition("**Game day.** ")
    return set(re.findall(r"`(\w+)`", names))


@every_day
def test_expected_signs_are_exported(day: Gameday) -> None:
    expected = day.expected
    assert set(expected.codes) <= set(REGISTRY)
    assert set(expected.checks) <= set(NAMES)
    assert {*expected.rules, *expected.firing} <= ALERTS
    for sign in expected.signs:
        assert set(sign.labels) <= exported()[sign.metric], sign
        for label, value in sign.labels.items():
            assert value in VALUES.get(label, {value}), sign
    assert expected.codes or expected.signs


@every_day
def test_each_entry_names_its_game_day(day: Gameday) -> None:
    assert day.entries
    for entry in day.entries:
        assert day.name in gamedays_of(ENTRIES[entry]), entry


@every_day
def test_each_rule_links_to_an_entry_that_names_its_game_day(day: Gameday) -> None:
    led_to = {
        rule["annotations"]["runbook_url"].removeprefix("docs/runbook.md#")
        for rule in all_rules()
        if rule.get("alert") in {*day.expected.rules, *day.expected.firing}
    }
    assert not led_to or led_to & set(day.entries)


@every_day
def test_each_game_day_was_held_and_its_audit_found_what_it_caused_itself(day: Gameday) -> None:
    (row,) = re.findall(rf"^\| `{day.name}` \|.*$", PAGE, re.MULTILINE)
    assert row.startswith(fixed_cells(day)), "run the game day again, or correct its row"
    result = " ".join(f"{day.findings.get(kind, 0)} {kind}," for kind in AUDITED).rstrip(",")
    held = r" [\d-]+, [\d.]+, [\d.]+; \d+ transactions, \d+ alerts: "
    assert re.fullmatch(rf"{held}{result} \|", row.removeprefix(fixed_cells(day)))


def test_the_runbook_names_only_existing_game_days() -> None:
    named = {name for text in ENTRIES.values() for name in gamedays_of(text)}
    assert named == set(DAYS)
    assert all(name == day.name for name, day in DAYS.items())


def test_they_are_listed_and_an_unknown_one_is_a_usage_error() -> None:
    listed = CliRunner().invoke(app, ["gameday", "list"])
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.output.splitlines() if line[0] != " "] == list(DAYS)
    assert all(" ".join(plan(day).split()) in " ".join(listed.output.split()) for day in DAYS.values())
    assert CliRunner().invoke(app, ["gameday", "nonsense"]).exit_code == 2

"""Rows of the table of game days in docs/measurements.md: plan, and result of the last run. Pure."""

import re
from datetime import date

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.sight import Expected

COLUMNS = """| game day | provoked, remedy | must be seen | held, seen after, well after; audited |
|---|---|---|---|
"""
_STEP = re.compile(r"^ *([\d.]+) s  (seen|well|audit) +(.*)$")


def plan(day: Gameday) -> str:
    """Return the cells of a game day that do not depend on a run."""
    note = f" {day.note}" if day.note else ""
    symptom = f"{day.symptom}: {day.provoked_by}. Remedy: {day.mended_by}."
    return f"| `{day.name}` | {symptom} | {_expected(day.expected)}.{note} |"


def row(day: Gameday, lines: list[str], held: date, prometheus: bool) -> str:
    """Return the row of a game day.

    Args:
        lines: lines of its journal, of a run that did not fail.
        held: date of the run.
        prometheus: whether alerting rules were evaluated.
    """
    steps = {match[2]: match for match in map(_STEP.match, lines) if match}
    times = f"{held.isoformat()}, {steps['seen'][1]}, {steps['well'][1]}"
    rules = "" if prometheus else "; without Prometheus, so no rule was evaluated"
    return f"{plan(day)} {times}; {steps['audit'][3]}{rules} |\n"


def _expected(expected: Expected) -> str:
    parts = {
        "codes": expected.codes,
        "broken checks": expected.checks,
        "metrics": tuple(str(sign) for sign in expected.signs),
        "active rules": expected.rules,
        "firing rules": expected.firing,
    }
    texts = [f"{name} {', '.join(f'`{item}`' for item in items)}" for name, items in parts.items() if items]
    return "; ".join(texts)


def put(page: str, name: str, text: str) -> str:
    """Return the page with a row replaced, or added to the table if it is new."""
    if old := re.search(rf"^\| `{name}` \|.*\n", page, re.MULTILINE):
        return page[: old.start()] + text + page[old.end() :]
    head, columns, rest = page.partition(COLUMNS)
    assert columns, "the page has no table of game days"
    return head + columns + text + rest

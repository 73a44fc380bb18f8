"""Rows of the table of game days in docs/measurements.md: results of the last runs. Pure."""

import re
from datetime import date
from hashlib import sha256

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.sight import Expected

COLUMNS = """| game day | symptom | plan | held, seen after, well after; audited |
|---|---|---|---|
"""
_STEP = re.compile(r"^ *([\d.]+) s  (seen|well|audit) +(.*)$")


def plan(day: Gameday) -> str:
    """Return how a game day is provoked and mended, and what must be seen."""
    note = f" {day.note}" if day.note else ""
    return f"{day.provoked_by}. Remedy: {day.mended_by}. Must be seen: {_expected(day.expected)}.{note}"


def fixed_cells(day: Gameday) -> str:
    """Return the cells of a game day that do not depend on a run, the digest of its plan among them."""
    return f"| `{day.name}` | {day.symptom} | {sha256(plan(day).encode()).hexdigest()[:8]} |"


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
    return f"{fixed_cells(day)} {times}; {steps['audit'][3]}{rules} |\n"


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

"""Generator of docs/gamedays.md: one section for each game day, with the result of its last run. Pure."""

import re
from datetime import date

from loadtests.gamedays.day import Gameday
from loadtests.gamedays.sight import Expected

_STEP = re.compile(r"^ *([\d.]+) s  (seen|well|audit) +(.*)$")


def section(day: Gameday, lines: list[str], held: date, prometheus: bool) -> str:
    """Return the section of a game day.

    Args:
        lines: lines of its journal, of a run that did not fail.
        held: date of the run.
        prometheus: whether alerting rules were evaluated.
    """
    steps = {match[2]: match for match in map(_STEP.match, lines) if match}
    rules = "" if prometheus else " Prometheus was not installed: no rule was evaluated."
    result = (
        f"Held on {held.isoformat()}: all was seen after {steps['seen'][1]} s, and well again after "
        f"{steps['well'][1]} s. The audit: {steps['audit'][3]}.{rules}"
    )
    return f"{_plan(day)}\n{result}\n"


def _plan(day: Gameday) -> str:
    entries = ", ".join(f"[{entry}](runbook.md#{entry})" for entry in day.entries)
    note = f" {day.note}" if day.note else ""
    provoked = f"Provoked: {day.provoked_by}. Remedy: {day.mended_by}."
    return (
        f"## {day.name}\n\n{day.symptom}. Runbook: {entries}.\n\n"
        f"{provoked}\n\n{_expected(day.expected)}{note}\n"
    )


def _expected(expected: Expected) -> str:
    parts = {
        "codes": expected.codes,
        "broken checks of `/readyz`:": expected.checks,
        "metrics": tuple(str(sign) for sign in expected.signs),
        "rules that become active": expected.rules,
        "rules that fire": expected.firing,
    }
    texts = [f"{name} {', '.join(f'`{item}`' for item in items)}" for name, items in parts.items() if items]
    return f"Must be seen: {'; '.join(texts)}."


def put(page: str, name: str, text: str) -> str:
    """Return the page with a section replaced, or appended if it is new."""
    section = re.search(rf"^## {name}\n.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if section is None:
        return f"{page.rstrip()}\n\n{text}"
    rest = page[section.end() :]
    return page[: section.start()] + text + ("\n" + rest if rest else "")

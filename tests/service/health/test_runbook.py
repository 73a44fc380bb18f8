"""docs/runbook.md has one entry for each reason code; its other entries are of Prometheus alerts."""

import re
from pathlib import Path

import pytest

from service.health.codes import REGISTRY, link
from service.health.readiness import NAMES

pytestmark = pytest.mark.unit
PAGE = (Path(__file__).parents[3] / "docs" / "runbook.md").read_text()
ENTRIES = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
PARTS = ("**How it shows.**", "**Why.**", "**What to do.**")


def test_each_code_has_its_entry_and_the_others_are_of_alerts() -> None:
    assert set(REGISTRY) <= set(ENTRIES)
    assert len(ENTRIES) == len(re.findall(r"^## ", PAGE, re.MULTILINE))
    for name in set(ENTRIES) - set(REGISTRY):
        assert re.match(r"\n`Fraud\w+`[,:]", ENTRIES[name]), name


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_each_entry_has_symptom_cause_and_remedy(name: str) -> None:
    entry = ENTRIES[name]
    if name in REGISTRY:
        assert entry.startswith(f"\n`{REGISTRY[name].verdict}`: {REGISTRY[name].meaning}")
    indexes = [entry.index(part) for part in PARTS]
    assert indexes == sorted(indexes)
    for start, end in zip(indexes, [*indexes[1:], len(entry)], strict=True):
        assert len(entry[start:end].split()) > 4


def test_each_link_has_its_entry() -> None:
    for name in REGISTRY:
        page, _, heading = link(name, "docs/runbook.md").partition("#")
        assert (page, heading) == ("docs/runbook.md", name)
        assert heading in ENTRIES
    assert set(NAMES.values()) <= REGISTRY.keys()
    for code in REGISTRY.values():
        assert re.fullmatch(r"[A-Z][^.]*\.", code.meaning)

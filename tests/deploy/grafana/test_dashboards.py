"""The stored dashboards equal the generated ones; panels have descriptions and use exported metrics."""

import json
import re
from pathlib import Path

import pytest
from harness.promql import check

from deploy.grafana import HOME
from deploy.grafana.__main__ import files
from deploy.grafana.answers import filled
from deploy.grafana.panels import DASHBOARDS

pytestmark = pytest.mark.unit
KEPT = {path.stem: json.loads(path.read_text()) for path in sorted(HOME.glob("*.json"))}
PANELS = [
    (f"{name}: {panel['title']}", panel)
    for name, page in KEPT.items()
    for panel in page["panels"]
    if panel["type"] != "row"
]
RUNBOOK = (Path(__file__).parents[3] / "docs" / "runbook.md").read_text()
ENTRIES = set(re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE))
UNITS = {"s", "ops", "reqps", "short", "bytes", "percentunit"}
panels = pytest.mark.parametrize("panel", [panel for _, panel in PANELS], ids=[name for name, _ in PANELS])


def test_the_stored_dashboards_are_those_of_the_table():
    result = files()
    assert sorted(path.name for path in result) == sorted(path.name for path in HOME.glob("*.json"))
    for path, text in result.items():
        assert path.read_text() == text, "stale: run `python -m deploy.grafana`"


@panels
def test_each_panel_has_a_description_and_a_link_to_the_runbook(panel):
    assert re.match(r"[A-Z0-9].{15,}", panel["description"])
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"] in UNITS
    (link,) = defaults["links"]
    assert link["url"].removeprefix("${runbook}#") in ENTRIES


@panels
def test_each_panel_queries_exported_metrics(panel):
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        labels = check(filled(target["expr"], "card-fraud"))
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert named <= labels, "the legend names a label that the query does not have"


@pytest.mark.parametrize("page", KEPT.values(), ids=KEPT)
def test_panels_do_not_overlap(page):
    taken: set[tuple[int, int]] = set()
    for panel in page["panels"]:
        position = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    numbers = [panel["id"] for panel in page["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_the_overview_begins_with_lag():
    first = [panel["title"] for panel in KEPT["fraud-overview"]["panels"]][:2]
    assert first == ["Lag", "Lag"]
    assert len(DASHBOARDS) == 5

"""The dashboards of dashboards.yml, and their JSON for Grafana 10.4 and newer (schema version 39)."""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
"""Columns of Grafana's grid."""

SIZES = {"stat": (6, 4)}
"""Width and height by kind of panel; of other kinds: (12, 8)."""


@dataclass(frozen=True)
class Panel:
    """A panel of a dashboard."""

    title: str
    description: str
    """What the panel shows, and which values are good."""
    unit: str
    """Grafana's name of the unit: s, ops, bytes, percentunit, short ..."""
    runbook: str
    """Entry of docs/runbook.md that each data point links to."""
    queries: Mapping[str, str]
    """Legend, in Grafana's format -> PromQL."""
    kind: str = "timeseries"
    """timeseries, stat, state-timeline, table or heatmap."""
    red_from: float | None = None
    """Threshold from which values are red; None: no threshold."""
    stacked: bool = False


@dataclass(frozen=True)
class Dashboard:
    """A dashboard of Grafana; its URL contains the uid, which must therefore not change."""

    uid: str
    title: str
    description: str
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    """Heading -> fields of each `Panel` below it."""
    refresh: str = "10s"
    since: str = "now-1h"

    def to_json(self) -> dict[str, Any]:
        """Build the JSON that Grafana imports."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["card-fraud"],
            "schemaVersion": 39,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": self.refresh,
            "time": {"from": self.since, "to": "now"},
            "timezone": "browser",
            "templating": {"list": _variables()},
            "annotations": {"list": [_alerts()]},
            "links": [
                {
                    "type": "dashboards",
                    "title": "card-fraud",
                    "tags": ["card-fraud"],
                    "asDropdown": True,
                    "includeVars": True,
                    "keepTime": True,
                }
            ],
            "panels": _placed(self.rows),
        }


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "type": "datasource", "label": "Prometheus", "query": "prometheus"},
        {
            "name": "job",
            "type": "query",
            "label": "Job",
            "datasource": DATASOURCE,
            "query": {"query": "label_values(fraud_key_groups, job)", "refId": "job"},
            "refresh": 2,
            "sort": 1,
        },
        {
            "name": "runbook",
            "type": "textbox",
            "label": "Runbook",
            "query": "docs/runbook.md",
            "current": {"text": "docs/runbook.md", "value": "docs/runbook.md"},
            "hide": 0,
        },
    ]


def _alerts() -> dict[str, Any]:
    return {
        "name": "Pages",
        "enable": True,
        "iconColor": "red",
        "datasource": DATASOURCE,
        "expr": 'ALERTS{alertname=~"Fraud.*",alertstate="firing",severity="page"}',
        "titleFormat": "{{alertname}}",
        "step": "30s",
    }


def _placed(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in rows.items():
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        heading = {"type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        panels.append({"id": len(panels) + 1, **heading})
        x, y, tallest = 0, y + 1, 0
        for panel in (Panel(**fields) for fields in row):
            width, height = SIZES.get(panel.kind, (12, 8))
            if x + width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            place = {"x": x, "y": y, "w": width, "h": height}
            panels.append(_panel(panel, len(panels) + 1, place))
            x, tallest = x + width, max(tallest, height)
        y += tallest
    return panels


def _panel(panel: Panel, number: int, grid_position: dict[str, int]) -> dict[str, Any]:
    instant = panel.kind in ("stat", "table")
    targets = [
        {
            "refId": letter,
            "datasource": DATASOURCE,
            "expr": expression,
            "legendFormat": legend,
            "range": not instant,
            "instant": instant,
            "format": {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series"),
        }
        for letter, (legend, expression) in zip(string.ascii_uppercase, panel.queries.items(), strict=False)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "gridPos": grid_position,
        "datasource": DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": OPTIONS[panel.kind],
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "links": [
            {
                "title": f"Runbook: {panel.runbook}",
                "url": f"${{runbook}}#{panel.runbook}",
                "targetBlank": True,
            }
        ],
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.kind == "timeseries":
        defaults["min"] = 0
        defaults["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "off" if panel.red_from is None else "line"},
        }
    return defaults


_LEGEND = {"showLegend": True, "displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}
OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background",
        "graphMode": "none",
        "textMode": "auto",
    },
    "state-timeline": {"mergeValues": True, "showValue": "never", "rowHeight": 0.9},
    "table": {"showHeader": True, "cellHeight": "sm"},
    "heatmap": {
        "calculate": False,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
        "yAxis": {"unit": "short"},
    },
}
"""Panel options by kind of panel."""
DASHBOARDS = [
    Dashboard(**fields) for fields in yaml.safe_load(Path(__file__).with_name("dashboards.yml").read_text())
]

"""Dashboards and panels as data, and as the JSON of Grafana 10.4 and newer (schema version 39)."""

import string
from dataclasses import dataclass
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
"""Columns of Grafana's grid."""


@dataclass(frozen=True)
class Query:
    """One query; `legend` is in Grafana's format, with labels in double braces."""

    expression: str
    legend: str = ""


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
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    """timeseries, stat, state-timeline, table or heatmap."""
    width: int = 12
    height: int = 8
    red_from: float | None = None
    """Threshold from which values are red; None: no threshold."""
    stacked: bool = False


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """A dashboard of Grafana; its URL contains the uid, which must therefore not change."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
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


def _placed(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        grid_position = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": grid_position,
                "panels": [],
            }
        )
        x, y, tallest = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            grid_position = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            panels.append(_panel(panel, len(panels) + 1, grid_position))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    return panels


def _panel(panel: Panel, number: int, grid_position: dict[str, int]) -> dict[str, Any]:
    instant = panel.kind in ("stat", "table")
    targets = [
        {
            "refId": letter,
            "datasource": DATASOURCE,
            "expr": query.expression,
            "legendFormat": query.legend or "__auto",
            "range": not instant,
            "instant": instant,
            "format": {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series"),
        }
        for letter, query in zip(string.ascii_uppercase, panel.queries, strict=False)
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

"""Answers of a Prometheus to the queries of panels."""

import json
import math
import re
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 30.0
STEPS = 200
"""Number of steps of a range query."""


@dataclass(frozen=True)
class Series:
    """One series of an answer."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]
    """(seconds since 1970-01-01 UTC, value); values may be NaN."""


class Prometheus:
    """Client of one server; raises OSError if it does not answer, or refuses a query."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def range(self, query: str, start_s: float, end_s: float) -> list[Series]:
        """Return the series of a query between two times, in about STEPS steps of 1 s or more."""
        step = max(1.0, (end_s - start_s) / STEPS)
        found = self._ask("query_range", query=query, start=f"{start_s}", end=f"{end_s}", step=f"{step:.0f}")
        return [Series(_labels(item), _points(item["values"])) for item in found]

    def instant(self, query: str, at_s: float) -> list[Series]:
        """Return the value of each series of a query at a time."""
        found = self._ask("query", query=query, time=f"{at_s}")
        return [Series(_labels(item), _points([item["value"]])) for item in found]

    def _ask(self, kind: str, **parameters: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/api/v1/{kind}?{query}", timeout=TIMEOUT_S) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


def filled(expression: str, job: str) -> str:
    """Replace Grafana's variables in an expression; `job` is the name of the scrape job."""
    return expression.replace("$__rate_interval", "1m").replace("$job", job)


def legend(template: str, series: Series) -> str:
    """Return the name of a series: the template, filled in as by Grafana, or all labels for `__auto`."""
    if template == "__auto":
        return ", ".join(f"{name} {value}" for name, value in sorted(series.labels.items()))
    return re.sub(r"\{\{(\w+)\}\}", lambda found: series.labels.get(found[1], ""), template)


def _labels(item: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in item["metric"].items() if name != "__name__"}


def _points(values: list[list[Any]]) -> list[tuple[float, float]]:
    points = [(float(at), float(value)) for at, value in values]
    return [(at, math.nan if math.isinf(value) else value) for at, value in points]

"""Plots of benchmark reports."""

from typing import Any

import pytest

from loadtests.bench.plots import plots
from loadtests.rig import histograms

pytestmark = pytest.mark.unit


def report(**figures: float) -> dict[str, Any]:
    return {"figures": [{"name": name.replace("_", " "), "value": value} for name, value in figures.items()]}


def test_each_plot_shows_the_reports_that_have_its_figures_by_name() -> None:
    live = {**report(p50=10.0), "latency_curve": histograms.curve(histograms.of([5_000, 10_000, 500_000]))}
    backlog = report(calibration=1_000_000.0, throughput=450_000.0)
    engine = {"figures": [{"name": f"kernel, {cards:,} cards", "value": 700.0} for cards in (1_000, 100_000)]}
    drawn = plots({"2,000 a second": live, "with profiles": backlog, "today": engine})
    assert set(drawn) == {"latency", "throughput", "cards"}
    for name, label in (("latency", "2,000 a second"), ("throughput", "with profiles: 450,000, 0.45")):
        assert f"<!-- {label} -->" in drawn[name]
        assert drawn[name].count("<!-- today -->") == 0
    assert "<!-- today -->" in drawn["cards"]


def test_reports_without_figures_to_plot_have_no_plot() -> None:
    assert plots({"chaos": report(jobs=1.0)}) == {}

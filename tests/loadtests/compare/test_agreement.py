"""Agreement of two engines' alerts, and the table that shows it."""

from typing import Any

import numpy as np
import pytest

from loadtests.compare import report
from loadtests.compare.alerts import Alerts, agreement
from loadtests.compare.engines import VARIANTS, chosen
from loadtests.compare.errors import CompareError
from loadtests.compare.measure import Run

pytestmark = pytest.mark.unit


def alerts(**scores: float) -> Alerts:
    count = len(scores)
    return Alerts(list(scores), list(scores.values()), np.zeros(count, np.int64), np.zeros(count))


def test_equal_alerts_agree_in_any_order_whatever_the_last_bits_of_a_score() -> None:
    result = agreement(alerts(b=0.7 + 1e-12, a=0.5), alerts(a=0.5, b=0.7))
    assert result.holds
    assert 0 < result.greatest_difference < 1e-11


@pytest.mark.parametrize(
    ("found", "missing", "unexpected", "duplicated"),
    [
        (alerts(a=0.5), 1, 0, 0),
        (alerts(a=0.5, b=0.7, c=0.9), 0, 1, 0),
        (alerts(a=0.5, b=0.71), 0, 0, 0),
        (Alerts(["a", "b", "b"], [0.5, 0.7, 0.7], np.zeros(3, np.int64), np.zeros(3)), 0, 0, 1),
    ],
)
def test_any_difference_is_counted_and_ends_the_agreement(
    found: Alerts, missing: int, unexpected: int, duplicated: int
) -> None:
    difference = agreement(found, alerts(a=0.5, b=0.7))
    assert (difference.missing, difference.unexpected, difference.duplicated) == (
        missing,
        unexpected,
        duplicated,
    )
    assert not difference.holds


def run(place: int, made: Alerts) -> Run:
    latencies = np.linspace(1, 1_000, 1_000)
    return Run(VARIANTS[place], made, 1_000.0, 50.0, latencies, 0.5, 0.1, 300.0, 0, 1.0, 9.5)


def test_table_and_plots_name_every_engine_and_its_difference() -> None:
    floor = Alerts(["c", "c"], [0.0, 0.0], np.zeros(2, np.int64), np.zeros(2))
    rows = report.rows([run(0, alerts(a=0.5, b=0.7)), run(2, alerts(a=0.5)), run(1, floor)])
    content: dict[str, Any] = {
        "command": "fraud compare",
        "machine": {"cpu": "one", "cores": 2},
        "load": {"rate": 100.0, "for_s": 10.0, "backlog": 1_000},
        "threads": 1,
        "load_average": [0.1, 0.1, 0.1],
        "load_average_after": [0.2, 0.1, 0.1],
        "engines": rows,
    }
    table = report.markdown(content).splitlines()
    assert table[2].startswith("| this project | 1,000 | 50 | 500.2 |")
    assert table[3].split(" | ")[-2] == "1 / 0 / 0"
    # what decides nothing has no alerts to compare, but none may be doubled
    assert table[4].split(" | ")[-2] == "0 / 0 / 1"
    assert [row["agrees"] for row in rows] == [True, False, False]
    plots = report.plots(content)
    assert list(plots) == ["-latency.svg", "-throughput.svg"]
    assert all(plot.startswith("<svg") for plot in plots.values())


def test_engines_are_chosen_by_name() -> None:
    assert [variant.name for variant in chosen("quix, ours")] == ["ours", "quix"]
    with pytest.raises(CompareError, match="no engine flink"):
        chosen("ours,flink")

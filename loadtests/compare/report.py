"""Results of several engines as JSON, as a Markdown table and as plots."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from deploy.page_tables import table
from loadtests.compare.alerts import agreement
from loadtests.compare.measure import Run
from loadtests.rig import histograms, plot
from models.plots import BLUE, GREEN, GREY, RED, figure


def rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return one row of figures for each engine; alerts are compared with those of the first."""
    return [_row(run, runs[0]) for run in runs]


def _row(run: Run, first: Run) -> dict[str, Any]:
    compared = agreement(run.alerts, first.alerts if run.variant.decides else run.alerts)
    latency = histograms.of(1_000 * run.latencies_ms)
    return {
        "engine": run.variant.name,
        "title": run.variant.title,
        "settings": dict(run.variant.settings),
        "backlog_per_s": run.backlog_per_s,
        "backlog_cpu_us": run.backlog_cpu_us,
        "latency_ms": histograms.percentiles_ms(latency),
        "latency_curve": histograms.curve(latency),
        "measured_alerts": len(run.latencies_ms),
        "cores": run.cores,
        "broker_cores": run.broker_cores,
        "memory_mib": run.memory_mib,
        "behind_at_the_end": run.behind,
        "slip_p99_ms": run.slip_p99_ms,
        "recovery_s": run.recovery_s,
        "alerts": len(run.alerts),
        "agrees": compared.holds,
        **asdict(compared),
    }


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "": lambda row: row["title"],
    "backlog, tx/s": lambda row: f"{row['backlog_per_s']:,.0f}",
    "us of a core a tx": lambda row: f"{row['backlog_cpu_us']:,.0f}",
    "p50": lambda row: f"{row['latency_ms']['p50']:,.1f}",
    "p90": lambda row: f"{row['latency_ms']['p90']:,.1f}",
    "p99": lambda row: f"{row['latency_ms']['p99']:,.1f}",
    "p99.9": lambda row: f"{row['latency_ms']['p99.9']:,.1f}",
    "engine's cores": lambda row: f"{row['cores']:.2f}",
    "Kafka's cores": lambda row: f"{row['broker_cores']:.2f}",
    "MiB": lambda row: f"{row['memory_mib']:,.0f}",
    "next alert after SIGKILL, s": lambda row: f"{row['recovery_s']:,.1f}",
    "behind": lambda row: f"{row['behind_at_the_end']:,}",
    "alerts": lambda row: f"{row['alerts']:,}",
    "missing / unexpected / doubled": lambda row: (
        f"{row['missing']} / {row['unexpected']} / {row['duplicated']}"
    ),
    "score differs by": lambda row: f"{row['greatest_difference']:.0e}",
}


def markdown(results: dict[str, Any]) -> str:
    """Return the table with load and machine, as Markdown."""
    figures = ([cell(row) for cell in COLUMNS.values()] for row in results["engines"])
    load, machine = results["load"], results["machine"]
    loads = (results["load_average"], results["load_average_after"])
    before, after = (", ".join(f"{value:.1f}" for value in load_average) for load_average in loads)
    return (
        f"{table(tuple(COLUMNS), figures)}\n"
        f"Latency in ms at {load['rate']:,.0f} transactions/s for {load['for_s']:g} s, backlog of "
        f"{load['backlog']:,}; parallelism {results['threads']}; {machine['cpu']}, {machine['cores']} cores, "
        f"shared with Kafka and the generator; load average before {before}, after {after}. "
        f"`{results['command']}`\n"
    )


COLOURS = {"ours": BLUE, "floor": GREY, "streams": RED, "quix": GREEN}
STYLES = {"5": ":", "25": "-.", "default": "--"}
"""Line of a variant, by the part of its name after the engine's."""


def latency_plot(rows: Sequence[dict[str, Any]]) -> str:
    """Plot latency by percentile of each engine; variants of one engine have one colour."""
    lines = [(row["latency_curve"], {"label": row["title"], **_look(row)}) for row in rows]
    return plot.latency_plot(lines, of="alerts")


def throughput_plot(rows: Sequence[dict[str, Any]]) -> str:
    """Plot transactions per second from a backlog."""
    with figure("transactions/s", "") as (axes, svg):
        reversed_rows = list(reversed(rows))
        bars = axes.barh(
            [row["title"] for row in reversed_rows],
            [row["backlog_per_s"] for row in reversed_rows],
            color=[_look(row)["color"] for row in reversed_rows],
        )
        axes.bar_label(bars, fmt="{:,.0f}", padding=3)
        axes.set_xscale("log")
        axes.margins(x=0.15)
    return svg()


def plots(results: dict[str, Any]) -> dict[str, str]:
    """Return the plots as SVG, by the end of their files' names."""
    drawn = {"latency": latency_plot, "throughput": throughput_plot}
    return {f"-{name}.svg": draw(results["engines"]) for name, draw in drawn.items()}


def _look(row: dict[str, Any]) -> dict[str, str]:
    kind, _, variant = row["engine"].partition("-")
    return {"color": COLOURS[kind], "linestyle": STYLES.get(variant, "-")}

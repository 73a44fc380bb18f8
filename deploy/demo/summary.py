"""The end of a demo: what went in, what came out, whether it was right, how fast and how big it was."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from deploy.demo.watch import WARM_UP_S, Percentiles
from loadtests.audit.verify import Verdict

GIB = 2**30


@dataclass(frozen=True)
class Measured:
    """What only this run knows, beside the verdict."""

    latency: Percentiles | None
    """None where arrivals are history (replays), or without alerts."""
    events_per_s: float
    """Transactions of this run from the beginning of the load until the last one was decided."""
    seconds: float
    """Of that."""
    peak_memory: int
    """Bytes of all processes together."""
    rules: Mapping[str, int]
    """Alerts by rule."""
    declined_after_change: int
    """Alerts of cards that were blocked in Postgres after the first load."""
    profile_changes: int
    """Made in Postgres by this run."""
    restarts: int
    """How often this data directory was continued after a kill."""
    rollouts: Mapping[str, Any] = field(default_factory=dict)
    """What has become of each challenger of a tour."""


def report(verdict: Verdict, measured: Measured) -> dict[str, Any]:
    """Everything as JSON; the first nine names are a promise."""
    latency = measured.latency
    told = verdict.report()
    names = ("events", "alerts", "dead_letters", "missing", "duplicated", "unexpected")
    return {
        **{name: told.pop(name) for name in names},
        "p50_ms": round(latency.p50, 1) if latency else None,
        "p99_ms": round(latency.p99, 1) if latency else None,
        "events_per_s": round(measured.events_per_s, 1),
        **told,
        "latencies_measured": latency.alerts if latency else 0,
        "seconds": round(measured.seconds, 1),
        "peak_memory_bytes": measured.peak_memory,
        "alerts_by_rule": dict(measured.rules),
        "declined_after_change": measured.declined_after_change,
        "profile_changes": measured.profile_changes,
        "restarts": measured.restarts,
        "rollouts": dict(measured.rollouts),
    }


def write(path: Path, found: Mapping[str, Any]) -> None:
    """The report as a file, whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(found, indent=2) + "\n")
    part.replace(path)


def show(console: Console, verdict: Verdict, measured: Measured) -> None:
    """The report as a table for people."""
    found = report(verdict, measured)
    table = Table(
        title="Verified from the log by an independent recomputation", show_header=False, min_width=72
    )
    table.add_column()
    table.add_column(justify="right")
    since = f" (continued {measured.restarts} times)" if measured.restarts else ""
    table.add_row(f"transactions{since}", f"{found['events']:,}")
    table.add_row("alerts", f"{found['alerts']:,}")
    for rule, count in sorted(measured.rules.items()):
        table.add_row(f"  by {rule}", f"{count:,}")
    table.add_row("  of cards blocked in Postgres meanwhile", f"{measured.declined_after_change:,}")
    for name, told in measured.rollouts.items():
        table.add_row(f"challenger {name}, after {told['seconds']:.0f} s", told["phase"])
    if verdict.trials:
        table.add_row("shadow alerts, where a challenger said otherwise", f"{found['shadow_alerts']:,}")
    table.add_row("dead letters", f"{found['dead_letters']:,}")
    for reason, count in found["dead_letters_by_reason"].items():
        table.add_row(f"  {reason}", f"{count:,}")
    table.add_row("repeated transactions, recognised", f"{found['repeated_transactions']:,}")
    table.add_section()
    for name in ("missing", "duplicated", "unexpected"):
        colour = "green" if found[name] == 0 else "bold red"
        table.add_row(f"[{colour}]{name}[/]", f"[{colour}]{found[name]:,}[/]")
    problems = len(verdict.problems)
    colour = "green" if problems == 0 else "bold red"
    table.add_row(f"[{colour}]disagreements with job-progress[/]", f"[{colour}]{problems:,}[/]")
    table.add_section()
    if measured.latency is not None:
        what = f"event to alert, {measured.latency.alerts:,} alerts after {WARM_UP_S:.0f} s of warm-up"
        table.add_row(what, f"p50 {measured.latency.p50:,.0f} ms, p99 {measured.latency.p99:,.0f} ms")
    table.add_row("throughput of this run", f"{measured.events_per_s:,.0f}/s over {measured.seconds:,.0f} s")
    table.add_row("peak memory of all processes", f"{measured.peak_memory / GIB:.2f} GiB")
    console.print(table)
    for text in (*verdict.findings.examples, *verdict.problems):
        console.print(f"  [red]{text}[/]", highlight=False)

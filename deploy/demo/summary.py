"""Summary of a demo: inputs, outputs, audit result, speed and memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from deploy.demo.watch import Percentiles
from loadtests.audit.verify import AuditResult

GIB = 2**30


@dataclass(frozen=True)
class Measurement:
    """Measurements that the demo made while it ran, and that the audit does not make."""

    latency: Percentiles | None
    """Latency from arrival to alert; None for replays, whose arrivals are in the past, and without alerts."""
    events_per_s: float
    """Transactions per second, from the start of the load until the last one was decided."""
    seconds: float
    """Length of that period."""
    peak_memory: int
    """Memory of all processes together, bytes."""
    rules: Mapping[str, int]
    """Alerts by rule."""
    declined_after_change: int
    """Alerts of cards that were blocked in Postgres after the profiles had been loaded."""
    profile_changes: int
    """Profile changes made in Postgres since the last start of the demo."""
    restarts: int
    """How often this run was continued after a kill."""
    merchants: Mapping[str, Any] | None = None
    """`MerchantWatch.report`; None without `--merchant-labels`."""
    tour: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What a tour has shown: `rollouts`, the result of each challenger by name, or `replay`; else empty."""


def report(verdict: AuditResult, measured: Measurement) -> dict[str, Any]:
    """Build the report as JSON; the first nine names are stable."""
    latency = measured.latency
    audit_report = verdict.report()
    names = ("events", "alerts", "dead_letters", "missing", "duplicated", "unexpected")
    return {
        **{name: audit_report.pop(name) for name in names},
        "p50_ms": round(latency.p50, 1) if latency else None,
        "p99_ms": round(latency.p99, 1) if latency else None,
        "events_per_s": round(measured.events_per_s, 1),
        **audit_report,
        "latencies_measured": latency.alerts if latency else 0,
        "seconds": round(measured.seconds, 1),
        "peak_memory_bytes": measured.peak_memory,
        "alerts_by_rule": dict(measured.rules),
        "declined_after_change": measured.declined_after_change,
        "profile_changes": measured.profile_changes,
        "restarts": measured.restarts,
        "rollouts": {},
        **measured.tour,
        **({} if measured.merchants is None else {"merchants": measured.merchants}),
    }


def show(console: Console, verdict: AuditResult, measured: Measurement) -> None:
    """Print the report as a table."""
    totals = report(verdict, measured)
    table = Table(
        title="Verified by an independent recomputation from the input topics",
        show_header=False,
        min_width=72,
    )
    table.add_column()
    table.add_column(justify="right")
    since = f" (restarts: {measured.restarts})" if measured.restarts else ""
    table.add_row(f"transactions{since}", f"{totals['events']:,}")
    table.add_row("alerts", f"{totals['alerts']:,}")
    for rule, count in sorted(measured.rules.items()):
        table.add_row(f"  by {rule}", f"{count:,}")
    table.add_row("  of cards blocked in Postgres during the demo", f"{measured.declined_after_change:,}")
    if measured.merchants is not None:
        _add_merchants(table, measured.merchants)
    for name, trial in measured.tour.get("rollouts", {}).items():
        table.add_row(f"challenger {name}, after {trial['seconds']:.0f} s", trial["phase"])
    for act in ("switch", "back"):
        if act in measured.tour.get("replay", {}):
            table.add_row(f"{act} of the replay", "done")
    if verdict.trials:
        table.add_row("shadow alerts (verdicts other than the champion's)", f"{totals['shadow_alerts']:,}")
    table.add_row("dead letters", f"{totals['dead_letters']:,}")
    for reason, count in totals["dead_letters_by_reason"].items():
        table.add_row(f"  {reason}", f"{count:,}")
    table.add_row("repeated transactions, recognised", f"{totals['repeated_transactions']:,}")
    table.add_section()
    for name in ("missing", "duplicated", "unexpected"):
        colour = "green" if totals[name] == 0 else "bold red"
        table.add_row(f"[{colour}]{name}[/]", f"[{colour}]{totals[name]:,}[/]")
    problems = len(verdict.problems)
    colour = "green" if problems == 0 else "bold red"
    table.add_row(f"[{colour}]disagreements with job-progress[/]", f"[{colour}]{problems:,}[/]")
    table.add_section()
    if measured.latency is not None:
        label = f"arrival to alert, {measured.latency.alerts:,} alerts"
        if measured.latency.left_out_s:
            label += f" after {measured.latency.left_out_s:.0f} s of warm-up"
        table.add_row(label, f"p50 {measured.latency.p50:,.0f} ms, p99 {measured.latency.p99:,.0f} ms")
    table.add_row("throughput of this run", f"{measured.events_per_s:,.0f}/s over {measured.seconds:,.0f} s")
    table.add_row("peak memory of all processes", f"{measured.peak_memory / GIB:.2f} GiB")
    console.print(table)
    for text in (*verdict.findings.examples, *verdict.problems):
        console.print(f"  [red]{text}[/]", highlight=False)


def _add_merchants(table: Table, counts: Mapping[str, Any]) -> None:
    followed = counts["followed"]
    for where, shares in (("compromised merchants", counts["all"]), (followed["merchant_id"], followed)):
        table.add_row(f"frauds at {where}, alerted", "")
        for name, when in (("before", "before labels take effect"), ("after", "afterwards")):
            table.add_row(f"  {when}", f"{shares[f'alerted_{name}']:,} of {shares[name]:,}")

"""The live view of a demo: a screen on a terminal, or one line every few seconds elsewhere."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deploy.demo.watch import Percentiles


@dataclass(frozen=True)
class Moment:
    """All values shown at one moment."""

    title: str
    """Current phase of the demo."""
    elapsed_s: float
    """Time since the start of the load."""
    sent: int
    """Transactions fed since the demo was last started; a killed demo is continued by the next start."""
    sent_per_s: float
    decided: int
    """Transactions decided since the demo was first started, dead letters and repetitions included."""
    decided_per_s: float
    lag: int | None
    """Input records not yet decided; None while unknown."""
    alerts: int
    rules: Mapping[str, int]
    declined_after_change: int
    """Alerts of cards that were blocked in Postgres after the profiles had been loaded."""
    dead_letters: Mapping[str, int]
    duplicates: int
    late: int
    recent: Percentiles | None
    """Latency of the latest alerts."""
    profile_changes: int
    memory: int
    """Memory of all processes, bytes."""
    commits: int
    """Kafka transactions of all key groups since the demo was first started."""
    commits_per_s: float
    cards: int
    """Cards in the state of all key groups."""
    merchants: str | None = None
    """Of the frauds at compromised merchants, the shares that were alerted before and after the merchants'
    labels took effect, as text; None without `--merchant-labels`."""
    latest: list[dict[str, Any]] = field(default_factory=list)
    """Latest alerts, newest last."""


def line(now: Moment) -> str:
    """Render the moment as one line."""
    recent = now.recent
    latency = f"p50 {recent.p50:.0f} ms p99 {recent.p99:.0f} ms" if recent else "no latency yet"
    merchants = f"  frauds at compromised merchants alerted: {now.merchants}" if now.merchants else ""
    return (
        f"{now.title}  {now.elapsed_s:5.0f} s  in {now.sent_per_s:,.0f}/s  decided {now.decided:,}"
        f" ({now.decided_per_s:,.0f}/s)  lag {_count(now.lag)}  alerts {now.alerts:,}"
        f"  dead letters {sum(now.dead_letters.values()):,}  {latency}  {now.memory / 2**30:.1f} GiB"
        f"{merchants}"
    )


def screen(now: Moment, links: Mapping[str, str], hint: str) -> RenderableType:
    """Render the moment as a screen."""
    head = Text.assemble(
        (f" {now.title} ", "bold white on blue"), f"  {_clock(now.elapsed_s)}   ", (hint, "dim")
    )
    urls = Text("   ").join(Text.assemble((f"{name} ", "dim"), (url, "cyan")) for name, url in links.items())
    panels = Table.grid(expand=True)
    panels.add_row(_flow(now), _outcome(now), _job(now))
    merchants = Text(f" frauds at compromised merchants alerted: {now.merchants}", style="bold")
    return Group(head, urls, panels, *([merchants] if now.merchants else []), _alerts(now.latest))


def _flow(now: Moment) -> Panel:
    table = _pairs()
    table.add_row("in", f"{now.sent_per_s:,.0f}/s")
    table.add_row("decided", f"{now.decided_per_s:,.0f}/s")
    table.add_row("lag", _count(now.lag))
    table.add_row("decided so far", f"{now.decided:,}")
    table.add_row("p50 arrival to alert", f"{now.recent.p50:,.0f} ms" if now.recent else "-")
    table.add_row("p99 arrival to alert", f"{now.recent.p99:,.0f} ms" if now.recent else "-")
    return Panel(table, title="flow", border_style="blue")


def _outcome(now: Moment) -> Panel:
    table = _pairs()
    table.add_row("alerts", f"[bold]{now.alerts:,}[/]")
    for rule in ("score", "velocity_5m", "blocked_card"):
        table.add_row(f"  by {rule}", f"{now.rules.get(rule, 0):,}")
    table.add_row("  of newly blocked cards", f"{now.declined_after_change:,}")
    table.add_row("repeated / late", f"{now.duplicates:,} / {now.late:,}")
    return Panel(table, title="decisions", border_style="blue")


def _job(now: Moment) -> Panel:
    table = _pairs()
    table.add_row("commits", f"{now.commits:,} ({now.commits_per_s:,.0f}/s)")
    table.add_row("cards in state", f"{now.cards:,}")
    table.add_row("profile changes", f"{now.profile_changes:,}")
    table.add_row("memory, everything", f"{now.memory / 2**30:.1f} GiB")
    letters = sorted(now.dead_letters.items(), key=lambda item: -item[1])
    table.add_row("dead letters", f"{sum(now.dead_letters.values()):,}")
    for reason, count in letters[:1]:
        table.add_row(f"  {reason}", f"{count:,}")
    return Panel(table, title="job", border_style="blue")


def _alerts(latest: list[dict[str, Any]]) -> Panel:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="dim")
    for name, width in (
        ("time", 8),
        ("card", 13),
        ("amount", 13),
        ("country", 7),
        ("score", 5),
        ("decision", 8),
    ):
        table.add_column(name, justify="right" if name in ("amount", "score") else "left", width=width)
    table.add_column("rules", no_wrap=True, overflow="ellipsis", min_width=18)
    table.add_column("reasons", no_wrap=True, overflow="ellipsis", ratio=1)
    for alert in reversed(latest):
        table.add_row(*_alert(alert))
    return Panel(table, title="last alerts", border_style="red")


def _alert(alert: Mapping[str, Any]) -> tuple[str, ...]:
    at = time.strftime("%H:%M:%S", time.gmtime(alert["arrival_time"] / 1_000))
    score = "-" if alert["score"] is None else f"{alert['score']:.3f}"
    colour = "red" if alert["decision"] == "decline" else "yellow"
    return (
        at,
        alert["card_id"],
        f"{alert['amount']:,.2f} {alert['currency']}",
        alert["country"],
        score,
        f"[{colour}]{alert['decision']}[/]",
        ", ".join(alert["rules"]),
        ", ".join(f"{r['feature']} {_value(r['value'])}" for r in alert["reasons"][:3]),
    )


def _pairs() -> Table:
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column()
    table.add_column(justify="right")
    return table


def _value(value: float | None) -> str:
    return "?" if value is None else f"{value:,.4g}"


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"

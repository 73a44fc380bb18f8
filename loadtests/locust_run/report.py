"""The report of a load test, as JSON and as one HTML file with plots."""

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from loadtests.locust_run.peak import Peak, Probe
from loadtests.locust_run.result import Result
from loadtests.locust_run.verdict import Audit, Bounds
from loadtests.rig import report as reporting
from loadtests.rig.plot import Line, latency_plot, line_plot
from models import html_pages
from models.plots import BLUE, GREY, RED


@dataclass(frozen=True)
class LoadTestReport:
    """The complete report of a run or search."""

    begun: reporting.Report
    """Command, machine, versions, load average."""
    result: Result
    bounds: Bounds
    audit: Audit | None
    failures: tuple[str, ...]
    peak: Peak | None = None
    """Result of a search; `result` is that of the best run, or of the last if none passed."""

    @property
    def verdict(self) -> str:
        """Verdict: passed or failed."""
        return "failed" if self.failures else "passed"

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values; `audit` is null without an audit."""
        return self.begun.of(
            {
                "verdict": self.verdict,
                "failures": list(self.failures),
                "bounds": asdict(self.bounds),
                **({"peak": asdict(self.peak)} if self.peak else {}),
                **asdict(self.result),
                "audit": None if self.audit is None else asdict(self.audit),
            }
        )

    def as_html(self) -> str:
        """Return the report as one self-contained HTML file."""
        sections = "".join(
            f"<h2>{html.escape(title)}</h2>{svg}" for title, svg in run_plots(self.result).items()
        )
        if self.peak is not None:
            bound = self.bounds.p99_ms or 0.0
            sections = f"<h2>p99 by rate</h2>{peak_plot(self.peak.probes, bound)}" + sections
        reasons = "".join(f'<li class="failed">{html.escape(line)}</li>' for line in self.failures)
        verdict = f'<p><span class="{self.verdict}">{self.verdict}</span></p><ul>{reasons}</ul>'
        table, command = html_pages.table(("", ""), self.rows()), html.escape(self.begun.command)
        return html_pages.page("Load test", f"{verdict}{table}{sections}<footer>{command}</footer>")

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values of the most important figures."""
        result = self.result
        rows = []
        if self.peak is not None:
            peak = self.peak
            text = "none passed" if peak.rate is None else f"{peak.rate:,.0f} transactions/s"
            rows += [("peak", text), ("limited by", peak.limited_by or "nothing: no rate failed")]
        rows += [
            ("offered", f"{result.offered_rate:,.1f} transactions/s"),
            ("achieved", f"{result.achieved_rate:,.1f} transactions/s"),
            ("sent", f"{result.acknowledged:,} of {result.events:,}; unsent {result.unsent:,}"),
            *((f"latency {name}", f"{ms:,.1f} ms") for name, ms in result.latency_ms.items()),
            *(
                (f"arrival to alert {name}", f"{ms:,.1f} ms")
                for name, ms in result.arrival_ms.items()
                if name in ("p50", "p99")
            ),
            ("latency of", f"{result.latencies:,} alerts, from intended sending to receipt (read_committed)"),
            ("generator's slip p99", _or("not measured", result.slip_ms.get("p99"), "{:,.2f} ms")),
            ("generator's CPU cores", f"{result.generator_cores:.2f} by {result.workers} workers"),
            (
                "backlog after sending",
                "unknown" if result.backlog_at_end is None else f"{result.backlog_at_end:,}",
            ),
            ("drained after", "never" if result.drained_s is None else f"{result.drained_s:.1f} s"),
        ]
        audit = self.audit
        if audit is None:
            return [*rows, ("audit", "not made")]
        counts = f"{audit.missing} missing, {audit.duplicated} duplicated, {audit.unexpected} unexpected"
        return [*rows, ("audit", f"{audit.events:,} transactions, {audit.alerts:,} alerts: {counts}")]


def _or(otherwise: str, value: float | None, form: str) -> str:
    return otherwise if value is None else form.format(value)


def run_plots(result: Result) -> dict[str, str]:
    """Return a run's plots as SVG by title; the warm-up is shaded."""
    over_time = partial(line_plot, "s", shaded_to=result.plan.get("warm_up_s", 0))
    latencies = [_line(result, *line) for line in (("p50", BLUE), ("p99", RED), ("max", GREY))]
    return {
        "Latency by percentile": latency_plot([(result.latency_curve, {"color": BLUE})], of="transactions"),
        "Latency over time": over_time("ms", latencies, log="y"),
        "Rate over time": over_time(
            "transactions/s", [_line(result, "offered", GREY), _line(result, "sent", BLUE)]
        ),
        "Job's lag": over_time("transactions", [(result.lag, {"color": BLUE})]),
        "Generator's slip": over_time(
            "p99 in each second, ms", [(_line(result, "slip_p99", BLUE)[0], {"color": BLUE})]
        ),
    }


def peak_plot(probes: Sequence[Probe], bound_ms: float) -> str:
    """Plot p99 by rate: passed and failed probes, and the bound."""
    lines: list[Line] = []
    for passed, look in (
        (True, {"color": BLUE, "label": "passed", "marker": "o"}),
        (False, {"color": RED, "label": "failed", "marker": "x", "linestyle": ""}),
    ):
        chosen = [probe for probe in probes if probe.passed == passed]
        lines.append(
            (sorted((probe.rate, probe.p99_ms) for probe in chosen if probe.p99_ms is not None), look)
        )
    bound = [(0.0, bound_ms), (max((probe.rate for probe in probes), default=0.0), bound_ms)]
    lines.append((bound, {"color": GREY, "linestyle": "--", "linewidth": 1, "label": "bound"}))
    return line_plot("offered, transactions/s", "p99, ms", lines, log="y")


def _line(result: Result, name: str, colour: str) -> Line:
    points = [(row["at"], row[name]) for row in result.seconds if name in row]
    return points, {"color": colour, "label": name}

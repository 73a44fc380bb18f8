"""`fraud loadtest`: open-loop load tests with locust, and an audit of every run."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from feature_store.output_files import require_place
from loadtests.bench.rig import RigOptions
from loadtests.commands import run as verify
from loadtests.durations import seconds
from loadtests.locust_run import launch, peak, targets
from loadtests.locust_run.errors import LoadTestError, LoadTestFailed
from loadtests.locust_run.plan import LoadTestPlan
from loadtests.locust_run.report import LoadTestReport
from loadtests.locust_run.search import Search
from loadtests.locust_run.targets import Target
from loadtests.locust_run.verdict import Audit, Bounds, audited, failures
from loadtests.rig import report as reporting
from loadtests.rig.report import Say, saying

app = typer.Typer()
DATA_DIR = Path(".fraud/loadtest")
_load, _peak, _where, _bound = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Load", "Highest rate", "Where", "Bounds")
)


@app.command()
def loadtest(
    rate: Annotated[float, _load(help="Transactions a second; with --find-peak the first to try")] = 1_000.0,
    length: Annotated[
        str | None, _load("--for", help="Measured time, with --find-peak of each rate; default: 60s, 30s")
    ] = None,
    warm_up: Annotated[
        str | None, _load(help="Time before it; default: 30s, with --find-peak 5s before each rate")
    ] = None,
    shape: Annotated[str, _load(help="steady, ramp, spike, soak or replay")] = "steady",
    factor: Annotated[float, _load(help="Rate of a spike, as a multiple of --rate")] = 5.0,
    replay: Annotated[Path | None, _load(help="Parquet file to send; sets --shape replay")] = None,
    speed: Annotated[float, _load(help="Speed of a replay; 2 is twice as fast as recorded")] = 1.0,
    workers: Annotated[int, _load(min=1, max=256, help="Locust workers")] = 1,
    cards: Annotated[int, _load(min=100, help="Simulated cards")] = 50_000,
    seed: Annotated[int, _load(min=0, help="Seed of the simulated world")] = 1,
    sidecar_users: Annotated[int, _load(min=0, help="Readers of the sidecar's API")] = 2,
    find_peak: Annotated[
        bool, _peak("--find-peak", help="Find the highest rate with a p99 within --p99 and a stable lag")
    ] = False,
    most: Annotated[float, _peak(help="Highest rate to try")] = 100_000.0,
    precision: Annotated[float, _peak(help="Precision, as a share of the peak")] = 0.05,
    probes: Annotated[int, _peak(min=1, help="Maximum number of rates to try")] = 12,
    p99: Annotated[
        str | None,
        _bound("--p99", help="Bound of the latency's p99; default: none, with --find-peak 100ms"),
    ] = None,
    max_slip: Annotated[str, _bound(help="p99 of the sender's delays")] = "5ms",
    max_backlog: Annotated[str, _bound(help="Lag after sending, in seconds of the offered rate")] = "2s",
    drain: Annotated[str, _bound(help="Time limit for the lag to reach 0 after sending")] = "60s",
    with_audit: Annotated[bool, _bound("--audit/--no-audit", help="Recompute every alert at the end")] = True,
    own: Annotated[
        bool,
        _where(
            "--embedded/--cluster", help="Own stack and job, or the running job of the FRAUD_... variables"
        ),
    ] = True,
    allow_production: Annotated[
        bool, _where("--allow-production", help="Write to topics not named loadtest-...")
    ] = False,
    profiles: Annotated[bool, _where(help="Embedded: with profiles, through Postgres and Debezium")] = True,
    sidecar: Annotated[str, _where(help="URL of the job's sidecar, with --cluster")] = "",
    data_dir: Annotated[
        Path,
        _where(help="Directory of all data; emptied first (with --cluster only that of each run)"),
    ] = DATA_DIR,
    web_port: Annotated[
        int | None, typer.Option(help="Show locust's web UI on this port of 127.0.0.1")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write the report to this JSON file, and an HTML file beside it"),
    ] = None,
) -> None:
    """Run a load test, or search for the peak; exit status 1 if it fails, and each reason is shown.

    The load is an open loop: each transaction is due at a time that is fixed before the run, so if the system
    stalls, the whole delay of what becomes due meanwhile counts as latency.

    Shapes: steady; ramp rises from a tenth of --rate to --rate; spike is --factor times the rate in the
    middle fifth of the time; soak is a ramp in the first 5 % of the time, then steady, for hours; replay
    sends the file's transactions at their times, with new ids.

    The run fails if the p99 of the sender's delay exceeds --max-slip, if less than 99 % of the offered rate
    is achieved, if brokers have not acknowledged a transaction ten seconds after the end, if the lag then
    exceeds --max-backlog or does not reach 0 within --drain, if the p99 of the latency exceeds --p99, or if
    the audit finds a difference.

    --find-peak doubles the rate until a run fails or its lag grows (its slope exceeds 1 % of the rate and
    three standard errors), then bisects.

    Example: fraud loadtest --rate 10000 --for 120s --report out.json
    """
    require_place(report)
    if replay is not None and not replay.is_file():
        raise LoadTestError(f"no file {replay}; give a parquet file of transactions")
    if find_peak and (replay or shape != "steady" or web_port is not None):
        raise LoadTestError(
            "--find-peak has a steady load and no web UI; leave out --shape, --replay, --web-port"
        )
    if find_peak:
        length, warm_up, p99 = length or "30s", warm_up or "5s", p99 or "100ms"
    plan = LoadTestPlan(
        rate=rate, for_s=seconds(length or "60s"), warm_up_s=_maybe(warm_up or "30s"),
        shape="replay" if replay else shape, factor=factor, cards=cards, seed=seed,
        replay=str(replay.resolve()) if replay else "", speed=speed, drain_s=seconds(drain),
        sidecar_users=sidecar_users, directory=str(data_dir.resolve() / "run"),
    )  # fmt: skip
    bounds = _bounds(max_slip, max_backlog, p99)
    begun = reporting.Report()
    with (
        saying("load test") as say,
        _target(own, plan, data_dir, profiles, allow_production, sidecar, say) as target,
    ):
        found: peak.Peak | None = None
        if find_peak:
            search = Search(plan, target, bounds, workers, say)
            found = peak.find(search.probe, rate, most=most, precision=precision, probes=probes)
            result = search.results[found.probes[-1].rate if found.rate is None else found.rate]
            reasons = [f"no rate passed: {found.limited_by}"] if found.rate is None else []
            sent, seen = search.totals
            everything = replace(result, acknowledged=sent, alerts_seen=seen)
        else:
            plan = replace(plan, sidecar=target.sidecar if sidecar_users else "")
            result = launch.run(plan, target.settings, workers=workers, web_port=web_port, say=say)
            reasons, everything = failures(result, bounds), result
        audit = None
        if with_audit:
            say("auditing")
            audit = Audit.of(verify(target.settings), target.sent_before, target.alerts_before)
            reasons += audited(everything, audit, own_topics=target.own_topics)
    _show(LoadTestReport(begun, result, bounds, audit, tuple(reasons), found), report)


def _target(
    own: bool,
    plan: LoadTestPlan,
    data_dir: Path,
    profiles: bool,
    allow_production: bool,
    sidecar: str,
    say: Say,
) -> AbstractContextManager[Target]:
    if not own:
        return nullcontext(targets.cluster(allow_production=allow_production, sidecar=sidecar))
    rig_options = RigOptions(
        data_dir.resolve(), cards=plan.cards, seed=plan.seed, rate=plan.rate, profiles=profiles
    )
    return targets.embedded(rig_options, say, sidecar=plan.sidecar_users > 0)


def _bounds(slip: str, backlog: str, p99: str | None) -> Bounds:
    return Bounds(
        slip_p99_ms=seconds(slip) * 1_000,
        backlog_s=seconds(backlog),
        p99_ms=None if p99 is None else seconds(p99) * 1_000,
    )


def _maybe(text: str) -> float:
    """Parse seconds; 0 is allowed."""
    return 0.0 if text.strip() in ("0", "0s") else seconds(text)


def _show(report: LoadTestReport, to: Path | None) -> None:
    """Show and write a report."""
    reporting.write(to, report.as_json(), {".html": report.as_html()})
    reporting.show(f"load test {report.verdict}", report.rows())
    for line in report.failures:
        typer.echo(f"failed: {line}", err=True)
    if report.failures:
        raise LoadTestFailed(f"{len(report.failures)} conditions of the load test failed; see above")

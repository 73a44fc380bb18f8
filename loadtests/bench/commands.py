"""`fraud bench`: the benchmarks' command line."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from feature_store.output_files import require_place
from loadtests.bench.measure import Circumstance, Figure, Result, settings_of
from loadtests.durations import seconds
from loadtests.rig import report
from loadtests.rig.report import Say, saying

app = typer.Typer(no_args_is_help=True, help="Measure; see docs/measurements.md.")

Report = Annotated[
    Path | None,
    typer.Option(
        "--report", help="Write figures, versions and load averages to this JSON file, plots beside it"
    ),
]
Beside = Annotated[
    list[Path] | None,
    typer.Option(help="With --report: also plot this file of an earlier run; repeatable"),
]

DataDir = Annotated[Path, typer.Option(help="Directory of servers, checkpoint and logs; emptied first")]
Profiles = Annotated[bool, typer.Option(help="With profiles, fed through Postgres and Debezium")]
Shadows = Annotated[
    int, typer.Option(min=0, max=4, help="Number of challengers in shadow, each with its own model")
]
DATA_DIR = Path(".fraud/bench")


class Part(StrEnum):
    """Parts of the job that can be measured without servers."""

    CALIBRATION = "calibration"
    FEATURES = "features"
    SCORING = "scoring"
    MERCHANTS = "merchants"


@app.callback()
def _group() -> None:
    """Measure; see docs/measurements.md."""


@app.command()
def calibrate(
    parts: Annotated[
        list[Part] | None, typer.Option("--part", help="What to measure; repeatable; default: calibration")
    ] = None,
    to: Report = None,
    beside: Beside = None,
    cards: Annotated[
        list[int], typer.Option(help="Part features: numbers of cards to time the kernel with")
    ] = [  # noqa: B006
        1_000,
        100_000,
        5_000_000,
    ],
    rounds: Annotated[int, typer.Option(min=3, help="Number of rounds; the median counts")] = 9,
    transactions: Annotated[
        Path | None,
        typer.Option(help="Part features: Parquet file of transactions; also time their training set"),
    ] = None,
    number: Annotated[int, typer.Option("--merchants", min=1, help="Part merchants: how many")] = 1_000_000,
    per_day: Annotated[float, typer.Option(min=0, help="Part merchants: transactions of one per day")] = 1.0,
    labels_per_day: Annotated[
        int, typer.Option(min=0, help="Part merchants: reports of fraud per day")
    ] = 1_000,
) -> None:
    """Measure parts of the job in one process, without servers, to compare machines and releases.

    Part calibration decodes and scores 100,000 events. Part features is the feature engine: kernel, hot card,
    bytes per card, deltas, snapshots, decoding, drift. Part scoring scores 100,000 transactions with compiled
    trees on one core. Part merchants is the table of merchant facts with very many merchants: memory, state,
    time.

    Example: fraud bench calibrate --rounds 3
    """
    chosen = parts or [Part.CALIBRATION]

    def measured(say: Say) -> Iterator[Result]:
        if Part.FEATURES in chosen:
            yield from _features(cards, rounds, transactions)
        if Part.CALIBRATION in chosen:
            from loadtests.bench import scoring

            yield scoring.calibrate(rounds)
        if Part.SCORING in chosen:
            from loadtests.bench import scoring

            yield from scoring.measure(rounds)
        if Part.MERCHANTS in chosen:
            from loadtests.bench import merchants

            traffic = merchants.MerchantTraffic(number, per_day, labels_per_day)
            yield from merchants.measure(traffic, rounds, say)

    run("calibrate", measured, to, beside)


def _features(cards: list[int], rounds: int, transactions: Path | None) -> Iterator[Result]:
    from loadtests.bench import features as bench

    for number in cards:
        yield bench.kernel(number, rounds)
    yield bench.hot(rounds)
    yield from bench.one_busy_card(rounds)
    yield from bench.persistence(20_000, rounds)
    yield bench.decoding(rounds)
    yield bench.counting(rounds)
    if transactions is not None:
        yield bench.training_set(transactions, 3)


@app.command()
def throughput(
    to: Report = None,
    beside: Beside = None,
    events: Annotated[int, typer.Option(min=1, help="Transactions of the backlog")] = 4_000_000,
    warm_up: Annotated[
        int, typer.Option(min=0, help="Transactions sent before the backlog, at 10,000/s")
    ] = 2_000_000,
    span: Annotated[
        str,
        typer.Option(
            help="Span of the event times of all transactions, at most 7d; it ends now. Default: 6d; with "
            "--live that of its rate, so that the load does not look like fraud"
        ),
    ] = "",
    cards: Annotated[int, typer.Option(min=1, help="Number of cards")] = 100_000,
    profiles: Profiles = True,
    shadows: Shadows = 0,
    verify: Annotated[bool, typer.Option(help="Audit the result against the oracle")] = True,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Measure archive, replay, comparison and backtest of the log instead"),
    ] = False,
    live: Annotated[
        float, typer.Option(min=0, help="With --replay: transactions per second beside it, and at a switch")
    ] = 0.0,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Measure how fast the job works off a backlog, exactly once; FRAUD_... variables set up the job.

    With --replay the backlog is archived, replayed, compared, and decided in a backtest. With --live the
    latency beside archiver and replay is measured, too, and how long no alert comes at a switch and back.

    Example: fraud bench throughput --events 4000000 --warm-up 600000 --report throughput.json
    """
    from loadtests.bench import replay as replays
    from loadtests.bench import throughput as bench
    from loadtests.bench.history import SPAN_S
    from loadtests.bench.rig import RigOptions, rig
    from loadtests.bench.scoring import calibrate

    default_s = min(events / live, SPAN_S) if live else SPAN_S
    backlog = bench.Backlog(0 if replay else warm_up, events, seconds(span) if span else default_s)

    def measured(say: Say) -> Iterator[Result]:
        say("calibrating")
        yardstick = calibrate(rounds=5)
        yield yardstick
        options = RigOptions(
            data_dir.resolve(), cards, rate=backlog.rate, profiles=profiles, shadows=shadows, archive=True
        )
        with rig(options, say) as system:
            yield settings_of(system.installed.settings)
            if replay:
                yield from replays.measure(system, backlog, live, say)
                return
            for figure in bench.measure(system, backlog, say, verify=verify):
                yield figure
                if figure.name == bench.THROUGHPUT:
                    yield Figure("share of the calibration", figure.value / yardstick.value, "")

    run("throughput", measured, to, beside)


@app.command()
def latency(
    to: Report = None,
    beside: Beside = None,
    rate: Annotated[float, typer.Option(min=1, help="Transactions per second")] = 2_000.0,
    length: Annotated[
        str,
        typer.Option("--for", help="Length of the measurement; with --clients, of each stretch: 60s, 5m"),
    ] = "120s",
    warm_up: Annotated[str, typer.Option(help="Warm-up before the measurement")] = "90s",
    cards: Annotated[int, typer.Option(min=1, help="Number of cards")] = 100_000,
    profiles: Profiles = True,
    shadows: Shadows = 0,
    clients: Annotated[int, typer.Option(min=0, help="Concurrent clients of the sidecar's API")] = 0,
    per_minute: Annotated[int, typer.Option(min=1, help="Requests of all clients together")] = 10_000,
    turns: Annotated[
        int, typer.Option(min=1, help="Stretches with requests, and as many without; best whole epochs each")
    ] = 4,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Measure the time from a transaction's arrival to its alert; FRAUD_... variables set up the job.

    The time ends when a consumer receives the alert. With --clients, /metrics and /v1/status are requested in
    every other stretch: their response times are measured, and how such requests affect the job's latency.

    Example: fraud bench latency --rate 2000 --for 80s --warm-up 110s --report latency.json
    """
    from loadtests.bench import latency as bench
    from loadtests.bench import sidecar
    from loadtests.bench.rig import RigOptions, rig

    options = RigOptions(data_dir.resolve(), cards, rate=rate, profiles=profiles, shadows=shadows)
    warm_up_s, length_s = seconds(warm_up), seconds(length)  # refused before servers start

    def measured(say: Say) -> Iterator[Result]:
        with rig(options, say) as system:
            yield settings_of(system.installed.settings)
            if clients:
                load = sidecar.RequestLoad(clients, per_minute, rate, warm_up_s, length_s, turns)
                yield from sidecar.measure(system, load, say)
            else:
                yield from bench.measure(system, bench.Live(rate, warm_up_s, length_s), say)

    run("latency", measured, to, beside)


@app.command()
def restart(
    to: Report = None,
    cards: Annotated[int, typer.Option(min=1, help="Number of cards")] = 1_000_000,
    events: Annotated[int, typer.Option(min=1, help="Transactions that build up the state")] = 4_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Restarts and takeovers of each kind")] = 3,
    profiles: Profiles = True,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Measure the time without alerts at restarts and takeovers; FRAUD_... variables set up the job.

    Example: fraud bench restart --cards 100000 --events 400000 --rounds 1
    """
    from loadtests.bench import history
    from loadtests.bench import restart as bench
    from loadtests.bench.rig import RigOptions, rig

    options = RigOptions(
        data_dir.resolve(), cards, rate=history.rate(events), profiles=profiles, archive=True
    )

    def measured(say: Say) -> Iterator[Result]:
        with rig(options, say) as system:
            yield settings_of(system.installed.settings)
            yield from bench.measure(system, events, rounds, say)

    run("restart", measured, to)


@app.command()
def chaos(
    to: Report = None,
    kills: Annotated[
        int, typer.Option(min=0, help="SIGKILLs to workers, job, driver, JVM, broker, Postgres, Connect")
    ] = 200,
    faults: Annotated[int, typer.Option(min=0, help="Kafka requests and responses lost or delayed")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the random kills, faults and moments")] = 1,
    within: Annotated[str, typer.Option(help="Time after which no kill or fault begins: 30m")] = "24h",
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Kill processes, disturb the network, and audit everything at the end: 0 lost, 0 duplicated.

    Example: fraud bench chaos --kills 50 --faults 30 --report chaos.json
    """
    from loadtests.bench import chaos as bench

    extent = bench.ChaosExtent(data_dir.resolve(), kills, faults, seed, seconds(within))
    bench.require_clean(run("chaos", lambda say: bench.measure(extent, say), to))


def run(
    name: str,
    measured: Callable[[Say], Iterator[Result]],
    to: Path | None,
    beside: Sequence[Path] | None = None,
) -> list[Figure]:
    """Run a benchmark, show its figures, and write the report.

    Args:
        measured: yields the results; its argument is a function that prints a status.
        beside: reports of earlier runs, which the plots show, too.

    Returns:
        The figures.
    """
    require_place(to)
    earlier = _read(beside or ())
    begun = report.Report()
    results: list[Result] = []
    with saying(name) as say:
        for result in measured(say):
            results.append(result)
            say(f"measured: {result.name}")
    figures = [result for result in results if isinstance(result, Figure)]
    notes = {result.name: result.value for result in results if isinstance(result, Circumstance)}
    summary = begun.of({**notes, "figures": [asdict(figure) for figure in figures]})
    report.write(to, summary, _plots({**earlier, to.stem: summary}) if to is not None else None)
    report.show(
        f"fraud bench {name}",
        (
            (
                figure.name,
                f"{figure.value:,.4g}",
                "" if figure.elapsed is None else f"{figure.elapsed:,.4g}",
                figure.unit,
                figure.detail,
            )
            for figure in figures
        ),
        ("", "median", "elapsed", "unit", ""),
    )
    loads = (
        ", ".join(f"{load:.1f}" for load in summary[when]) for when in ("load_average", "load_average_after")
    )
    typer.echo(f"load average before {next(loads)}; after {next(loads)}")
    return figures


def _read(reports: Sequence[Path]) -> dict[str, Any]:
    try:
        return {path.stem: json.loads(path.read_text()) for path in reports}
    except (OSError, ValueError) as fault:
        raise report.ReportError(
            f"--beside: no report can be read ({fault}); give files of --report"
        ) from fault


def _plots(reports: dict[str, Any]) -> dict[str, str]:
    """Return the plots of reports by the end of their files' names."""
    from loadtests.bench.plots import plots

    return {f"-{name}.svg": svg for name, svg in plots(reports).items()}

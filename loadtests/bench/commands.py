"""`fraud bench`."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loadtests.bench.measure import Figure, Found, report, settings_of, surroundings
from loadtests.bench.saying import saying
from loadtests.durations import seconds

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Measure; see docs/benchmarks.md.")

Report = Annotated[
    Path | None, typer.Option("--report", help="Write figures, versions and load there, as JSON")
]


DataDir = Annotated[Path, typer.Option(help="Emptied first; servers, checkpoint and logs lie there")]
Profiles = Annotated[bool, typer.Option(help="With profiles, by way of Postgres and Debezium")]
Shadows = Annotated[
    int, typer.Option(min=0, max=4, help="Challengers in shadow, each with a model of its own")
]
DATA_DIR = Path(".fraud/bench")
Say = Callable[[str], None]


@app.callback()
def _group() -> None:
    """Measure; see docs/benchmarks.md."""


@app.command()
def features(
    to: Report = None,
    cards: Annotated[list[int], typer.Option(help="Numbers of cards to run the kernel with")] = [  # noqa: B006
        1_000,
        100_000,
        5_000_000,
    ],
    rounds: Annotated[int, typer.Option(min=3, help="The median of so many counts")] = 15,
    transactions: Annotated[
        Path | None, typer.Option(help="Parquet file to make a training set of, timed")
    ] = None,
) -> None:
    """The feature engine: kernel, hot card, bytes a card, deltas, snapshots, rebuild, decoding."""
    from loadtests.bench import features as bench

    def measured(say: Say) -> Iterator[Found]:
        for number in cards:
            yield bench.kernel(number, rounds)
        yield bench.hot(rounds)
        yield from bench.one_busy_card(rounds)
        yield from bench.persistence(20_000, rounds)
        yield bench.decoding(rounds)
        if transactions is not None:
            yield bench.training_set(transactions, 3)

    run("features", measured, to)


@app.command()
def calibrate(
    to: Report = None,
    rounds: Annotated[int, typer.Option(min=3, help="The median of so many")] = 9,
) -> None:
    """Parse and score 100,000 events in one process, without Spark or Kafka: this machine's measure."""
    from loadtests.bench.calibrate import calibrate as bench

    def measured(say: Say) -> Iterator[Found]:
        yield bench(rounds)

    run("calibrate", measured, to)


@app.command()
def throughput(
    to: Report = None,
    events: Annotated[int, typer.Option(min=1, help="Transactions of the backlog")] = 4_000_000,
    warm_up: Annotated[int, typer.Option(min=0, help="Transactions before those, 10,000/s")] = 2_000_000,
    cards: Annotated[int, typer.Option(min=1, help="Number of cards")] = 100_000,
    profiles: Profiles = True,
    shadows: Shadows = 0,
    verify: Annotated[bool, typer.Option(help="Audit the result against the oracle")] = True,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """How fast the job works off a backlog, exactly once; FRAUD_... variables set its settings."""
    from loadtests.bench import throughput as bench
    from loadtests.bench.calibrate import calibrate
    from loadtests.bench.rig import Plan, rig

    backlog = bench.Backlog(warm_up, events)

    def measured(say: Say) -> Iterator[Found]:
        say("calibrating")
        yardstick = calibrate(rounds=5)
        yield yardstick
        plan = Plan(data_dir.resolve(), cards, rate=backlog.rate, profiles=profiles, shadows=shadows)
        with rig(plan, say) as made:
            yield settings_of(made.installed.settings)
            for figure in bench.measure(made, backlog, say, verify=verify):
                yield figure
                if figure.name == bench.THROUGHPUT:
                    yield Figure("share of the calibration", figure.value / yardstick.value, "", ())

    run("throughput", measured, to)


@app.command()
def latency(
    to: Report = None,
    rate: Annotated[float, typer.Option(min=1, help="Transactions per second")] = 2_000.0,
    length: Annotated[str, typer.Option("--for", help="Measure for so long: 60s, 5m")] = "120s",
    warm_up: Annotated[str, typer.Option(help="Before what is measured")] = "90s",
    cards: Annotated[int, typer.Option(min=1, help="Number of cards")] = 100_000,
    profiles: Profiles = True,
    shadows: Shadows = 0,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """From a transaction's Kafka timestamp to its alert at a consumer; FRAUD_... variables set the job."""
    from loadtests.bench import latency as bench
    from loadtests.bench.rig import Plan, rig

    live = bench.Live(rate, seconds(warm_up), seconds(length))

    def measured(say: Say) -> Iterator[Found]:
        plan = Plan(data_dir.resolve(), cards, rate=rate, profiles=profiles, shadows=shadows)
        with rig(plan, say) as made:
            yield settings_of(made.installed.settings)
            yield from bench.measure(made, live, say)

    run("latency", measured, to)


@app.command()
def sidecar(
    to: Report = None,
    clients: Annotated[int, typer.Option(min=1, help="That ask at the same time")] = 50,
    per_minute: Annotated[int, typer.Option(min=1, help="Requests of all of them together")] = 10_000,
    rate: Annotated[float, typer.Option(min=1, help="Transactions per second")] = 2_000.0,
    length: Annotated[str, typer.Option("--for", help="Length of each stretch: 60s, 5m")] = "30s",
    turns: Annotated[int, typer.Option(min=1, help="Stretches with requests, and as many without")] = 3,
    warm_up: Annotated[str, typer.Option(help="Before what is measured")] = "110s",
    profiles: Profiles = True,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """How long /metrics and /v1/status take, and what asking for them costs the job's latency."""
    from loadtests.bench import sidecar as bench
    from loadtests.bench.rig import Plan, rig

    asked = bench.Asked(clients, per_minute, rate, seconds(warm_up), seconds(length), turns)

    def measured(say: Say) -> Iterator[Found]:
        with rig(Plan(data_dir.resolve(), rate=rate, profiles=profiles), say) as made:
            yield settings_of(made.installed.settings)
            yield from bench.measure(made, asked, say)

    run("sidecar", measured, to)


@app.command()
def restart(
    to: Report = None,
    cards: Annotated[int, typer.Option(min=1, help="Number of cards")] = 1_000_000,
    events: Annotated[int, typer.Option(min=1, help="Transactions that the state is made of")] = 4_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Restarts of either kind")] = 3,
    profiles: Profiles = True,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """From the start of a job that was killed to its first alert; FRAUD_... variables set the job."""
    from loadtests.bench import history
    from loadtests.bench import restart as bench
    from loadtests.bench.rig import Plan, rig

    plan = Plan(data_dir.resolve(), cards, rate=history.rate(events), profiles=profiles)

    def measured(say: Say) -> Iterator[Found]:
        with rig(plan, say) as made:
            yield settings_of(made.installed.settings)
            yield from bench.measure(made, events, rounds, say)

    run("restart", measured, to)


@app.command()
def chaos(
    to: Report = None,
    kills: Annotated[
        int, typer.Option(min=0, help="SIGKILLs: workers, job, driver, JVM, broker, Postgres, Connect")
    ] = 200,
    faults: Annotated[int, typer.Option(min=0, help="Requests and answers lost or late on their way")] = 100,
    seed: Annotated[int, typer.Option(help="Decides about kinds, order and moments")] = 1,
    within: Annotated[str, typer.Option(help="Begin none after so long: 30m")] = "24h",
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Kill whatever can be killed, spoil the network, and audit everything at the end: 0 lost, 0 doubled."""
    from loadtests.bench import chaos as bench

    plan = bench.Plan(data_dir.resolve(), kills, faults, seed, seconds(within))
    bench.require_clean(run("chaos", lambda say: bench.measure(plan, say), to))


def run(name: str, measured: Callable[[Say], Iterator[Found]], to: Path | None) -> list[Figure]:
    """Measure, show, and write the report.

    Args:
        name: of the benchmark.
        measured: measures the next figure whenever asked; says what it is doing.
        to: where the report goes, if anywhere.

    Returns:
        What was measured.
    """
    before = surroundings()
    found: list[Found] = []
    with saying(name) as say:
        for fact in measured(say):
            found.append(fact)
            say(f"measured: {fact.name}")
    told = report(" ".join(["fraud", *sys.argv[1:]]), before, found)
    figures = [fact for fact in found if isinstance(fact, Figure)]
    if to is not None:
        to.write_text(json.dumps(told, indent=2) + "\n")
    table = Table("", "median", "elapsed", "unit", "", title=f"fraud bench {name}", title_justify="left")
    for figure in figures:
        elapsed = "" if figure.elapsed is None else f"{figure.elapsed:,.4g}"
        table.add_row(figure.name, f"{figure.value:,.4g}", elapsed, figure.unit, figure.detail)
    Console().print(table)
    loads = (
        ", ".join(f"{load:.1f}" for load in told[when]) for when in ("load_average", "load_average_after")
    )
    typer.echo(f"load average before {next(loads)}; after {next(loads)}")
    return figures

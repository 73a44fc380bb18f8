"""`fraud compare`: runs engines one after the other on the same input and broker."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.markdown import Markdown

from feature_store.output_files import require_place
from loadtests.bench.rig import Rig, RigOptions, rig
from loadtests.compare import engines, report
from loadtests.compare.engines import Deployment, Variant
from loadtests.compare.errors import CompareError
from loadtests.compare.exported import exported
from loadtests.compare.measure import Run, measure, topics_of
from loadtests.compare.tape import LoadProfile, Tape, record
from loadtests.durations import seconds
from loadtests.rig import report as reporting
from loadtests.rig.report import saying
from models import loading
from models.policy import Policy

DATA_DIR = Path(".fraud/compare")
VENVS = Path(".fraud/compare-venvs")


def compare(
    only: Annotated[
        str,
        typer.Option(
            help="Engines (a,b,...). They run in the order of the default, whatever order is given; the "
            "others' alerts must agree with those of the first to run"
        ),
    ] = engines.ALL,
    rate: Annotated[float, typer.Option(min=1, help="Transactions per second of the steady load")] = 1_000.0,
    length: Annotated[str, typer.Option("--for", help="Length of the latency measurement: 60s, 5m")] = "45s",
    warm_up: Annotated[str, typer.Option(help="Warm-up at --rate before the measurement")] = "30s",
    kill: Annotated[
        str, typer.Option("--kill", help="Load after the measurement, in whose middle the engine is killed")
    ] = "20s",
    backlog: Annotated[int, typer.Option(min=1, help="Transactions of the backlog, sent together")] = 150_000,
    prime: Annotated[int, typer.Option(min=1, help="Transactions before the measurements")] = 50_000,
    cards: Annotated[int, typer.Option(min=100, help="Number of cards")] = 20_000,
    profiles: Annotated[bool, typer.Option(help="With profiles, fed through Postgres and Debezium")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulated world")] = 1,
    threads: Annotated[
        int, typer.Option(min=1, help="Parallelism of each engine: key groups, stream threads or processes")
    ] = 1,
    to: Annotated[
        Path | None,
        typer.Option("--report", help="Write results to this JSON file; .md file and two plots go beside it"),
    ] = None,
    data_dir: Annotated[Path, typer.Option(help="Directory of all data; emptied first")] = DATA_DIR,
) -> None:
    """Compare throughput, latency, recovery, CPU time and memory of the same job on several engines.

    See docs/measurements.md. The exit status is 1 if their alerts differ. It needs a JDK (javac), and the
    network at its first run.

    Example: fraud compare --only ours,streams-10 --rate 500 --for 30s --report compare.json
    """
    variants = engines.chosen(only)
    load = LoadProfile(prime, backlog, rate, seconds(warm_up), seconds(length), seconds(kill))
    require_place(to)
    begun = reporting.Report()

    def results(runs: list[Run], tape: Tape) -> dict[str, Any]:
        described = {"load": asdict(load), "threads": threads, "transactions": len(tape)}
        return begun.of({**described, "engines": report.rows(runs)})

    with (
        saying("compare") as say,
        rig(RigOptions(data_dir.resolve(), cards, seed, rate, profiles), say) as system,
    ):
        say("recording the input")
        start = time.time() - (prime + backlog) / rate
        tape = record(system.installed.world, load, int(start * 1_000))
        model = _export(system)
        runs: list[Run] = []
        for variant in variants:
            deployment = _deployment(variant, system, model, threads)
            runs.append(measure(variant, deployment, system, tape, load, say))
            _write(to, results(runs, tape))
    all_results = results(runs, tape)
    Console().print(Markdown(report.markdown(all_results)))
    _require_agreement(all_results["engines"])


def _export(system: Rig) -> Path:
    """Export the champion to a file for the other engines."""
    champion, directory = system.champion, system.options.data_dir
    scorer = loading.load(
        champion.ref, system.installed.stack.mlflow_tracking_uri, directory / "exported-models"
    )
    file = directory / "model.json"
    file.write_bytes(orjson.dumps(exported(scorer, Policy(champion.threshold, champion.max_count_5m))))
    return file


def _deployment(variant: Variant, system: Rig, model: Path, threads: int) -> Deployment:
    stack, name = system.installed.stack, variant.name
    return Deployment(
        stack.bootstrap_servers,
        stack.mlflow_tracking_uri,
        topics_of(name),
        f"compare-{name}",
        model,
        system.options.data_dir / name,
        threads,
        VENVS.resolve(),
        system.installed.settings.wait_for_snapshot_s,
    )


def _write(to: Path | None, results: dict[str, Any]) -> None:
    """Write the results so far; they remain if a later engine fails."""
    reporting.write(to, results, {".md": report.markdown(results), **report.plots(results)})


def _require_agreement(rows: list[dict[str, Any]]) -> None:
    """Raise CompareError if the alerts of the engines differ."""
    if others := [row["title"] for row in rows if not row["agrees"]]:
        raise CompareError(
            f"alerts of {', '.join(others)} differ from those of {rows[0]['title']}: the figures are invalid"
        )

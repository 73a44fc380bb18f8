"""`fraud compare`: one engine after the other over the same input, on the same broker."""

import gc
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.markdown import Markdown

from loadtests.bench.measure import surroundings
from loadtests.bench.rig import Plan, Rig, rig
from loadtests.bench.saying import saying
from loadtests.compare import engines, plots, report
from loadtests.compare.engines import Deployment, Variant
from loadtests.compare.errors import CompareError
from loadtests.compare.exported import exported
from loadtests.compare.measure import Run, measure, topics_of
from loadtests.compare.tape import Load, Tape, record
from loadtests.durations import seconds
from models import registry
from models.policy import Policy

DATA_DIR = Path(".fraud/compare")
VENVS = Path(".fraud/compare-venvs")


def compare(
    only: Annotated[
        str, typer.Option(help="Engines, separated by commas; the first one here is the yardstick")
    ] = engines.ALL,
    rate: Annotated[float, typer.Option(min=1, help="Transactions per second of the steady load")] = 1_000.0,
    length: Annotated[str, typer.Option("--for", help="Measure latency for so long: 60s, 5m")] = "45s",
    warm_up: Annotated[str, typer.Option(help="At that rate, before what is measured")] = "30s",
    backlog: Annotated[int, typer.Option(min=1, help="Transactions that are there at once")] = 150_000,
    prime: Annotated[int, typer.Option(min=1, help="Transactions before anything is measured")] = 50_000,
    cards: Annotated[int, typer.Option(min=100, help="Number of cards")] = 20_000,
    profiles: Annotated[bool, typer.Option(help="With profiles, by way of Postgres and Debezium")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulated world")] = 1,
    to: Annotated[
        Path | None, typer.Option("--report", help="Write JSON there; FILE.md and two plots beside it")
    ] = None,
    data_dir: Annotated[Path, typer.Option(help="Emptied first; everything lies there")] = DATA_DIR,
) -> None:
    """Throughput, latency, processor time and memory of the same job on several engines: docs/comparison.md.

    The exit status is 1 if their alerts differ.
    """
    variants = engines.chosen(only)
    load = Load(prime, backlog, rate, seconds(warm_up), seconds(length))
    results: dict[str, Any] = {
        "command": " ".join(["fraud", *sys.argv[1:]]),
        **surroundings(),
        "load": asdict(load),
    }
    with saying("compare") as say, rig(Plan(data_dir.resolve(), cards, seed, rate, profiles), say) as made:
        say("recording the input")
        start = time.time() - (prime + backlog) / rate
        tape = record(made.installed.world, load, int(start * 1_000))
        gc.freeze()  # what never goes away is not to be searched while latency is measured
        model = _export(made)
        runs: list[Run] = []
        for variant in variants:
            runs.append(measure(variant, _deployment(variant, made, model), made, tape, load, say))
            _write(to, results | _measured(runs, tape))
    whole = results | _measured(runs, tape)
    Console().print(Markdown(report.markdown(whole)))
    _require_agreement(whole["engines"])


def _measured(runs: list[Run], tape: Tape) -> dict[str, Any]:
    return {
        "transactions": len(tape),
        "engines": report.rows(runs),
        "load_average_after": surroundings()["load_average"],
    }


def _export(made: Rig) -> Path:
    """The model in charge, as a file for the others."""
    champion, directory = made.champion, made.plan.data_dir
    scorer = registry.load(
        champion.ref, made.installed.stack.mlflow_tracking_uri, directory / "exported-models"
    )
    file = directory / "model.json"
    file.write_bytes(orjson.dumps(exported(scorer, Policy(champion.threshold, champion.max_count_5m))))
    return file


def _deployment(variant: Variant, made: Rig, model: Path) -> Deployment:
    stack, name = made.installed.stack, variant.name
    return Deployment(
        stack.bootstrap_servers,
        stack.mlflow_tracking_uri,
        topics_of(name),
        f"compare-{name}",
        model,
        made.plan.data_dir / name,
        VENVS.resolve(),
        made.installed.settings.wait_for_snapshot_s,
    )


def _write(to: Path | None, results: dict[str, Any]) -> None:
    """All of it, as far as it goes: an engine that fails must not take the others' figures along."""
    if to is None:
        return
    to.write_text(json.dumps(results, indent=2) + "\n")
    to.with_suffix(".md").write_text(report.markdown(results))
    for plot in (plots.latency, plots.throughput):
        to.with_name(f"{to.stem}-{plot.__name__}.svg").write_text(plot(results["engines"]) + "\n")


def _require_agreement(rows: list[dict[str, Any]]) -> None:
    """Refuse figures of engines that did not do the same job.

    Raises:
        CompareError: alerts differ.
    """
    if others := [row["title"] for row in rows if not row["agrees"]]:
        raise CompareError(
            f"alerts of {', '.join(others)} are not those of {rows[0]['title']}: the figures mean nothing"
        )

"""`fraud stack`: the embedded stack from the command line."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from deploy.local import console, health, jars, stack
from deploy.local.ports import Ports

app = typer.Typer(no_args_is_help=True, help="Start and stop the embedded Kafka, Postgres and Debezium.")

DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir", envvar="FRAUD_DATA_DIR", help="Directory that holds everything of this stack."
    ),
]
DEFAULT_DATA_DIR = Path(".fraud/stack")
Port = Annotated[int, typer.Option(min=0, max=65_535, help="0: the port of the last start, or a free one.")]


@app.command()
def up(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    kafka_port: Port = 0,
    controller_port: Port = 0,
    postgres_port: Port = 0,
    connect_port: Port = 0,
    partitions: Annotated[int, typer.Option(min=1, help="Of new topics that have several.")] = 2,
    brokers: Annotated[
        int | None, typer.Option(help="1 or 3, which replicate each partition; by default as before, or 1.")
    ] = None,
    replay: Annotated[bool, typer.Option(help="Input topics take timestamps from the producer.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the endpoints as JSON.")] = False,
    fetch_only: Annotated[
        bool,
        typer.Option(
            "--fetch-only",
            help="Only fetch the Java archives of stack and job, for starts without a network.",
        ),
    ] = False,
) -> None:
    """Start the services that do not run yet, and wait until they are ready.

    Example: fraud stack up --partitions 4
    """
    if fetch_only:
        _fetch()
        return
    endpoints = stack.up(
        data_dir,
        ports=Ports(
            kafka=kafka_port, controller=controller_port, postgres=postgres_port, connect=connect_port
        ),
        partitions=partitions,
        brokers=brokers,
        replay=replay,
        progress=console.to_stderr(),
    )
    values = asdict(endpoints)
    typer.echo(
        json.dumps(values) if as_json else "\n".join(f"{name:20} {value}" for name, value in values.items())
    )


@app.command()
def down(data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Stop the services that `up` started; data is kept.

    Example: fraud stack down
    """
    stopped = stack.down(data_dir, progress=console.to_stderr())
    typer.echo(f"stopped {', '.join(stopped)}" if stopped else f"nothing was running on {data_dir}")


@app.command()
def status(data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Show every service and its log file; exit code 1 if one has died or the connector failed.

    Example: fraud stack status
    """
    for status in health.status(data_dir):
        details = f"log {health.log_file(data_dir, status.service)}"
        if status.pid:
            details = f"pid {status.pid}, port {status.port}, {status.memory_bytes >> 20} MiB, {details}"
        typer.echo(f"{status.service:10} {status.state:8} {details}")
    health.check(data_dir)


def _fetch() -> None:
    progress = console.to_stderr()
    for group in jars.EVERYDAY:
        jars.ensure(group, progress=progress)
    typer.echo(f"the Java archives of the stack and the job are in {jars.cache_directory()}")

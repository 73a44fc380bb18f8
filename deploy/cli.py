"""The command line: `fraud`. Every command group is imported only when it is called."""

import errno
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from feature_store.errors import FraudError
from feature_store.output_files import OutputError
from feature_store.printable import printable


@dataclass(frozen=True)
class Entry:
    """Import target and help line of a command."""

    target: str
    """`module:attribute` of a `typer.Typer` with one or more commands, or of a function that is one
    command."""
    help: str
    """One line for `fraud --help`, which imports none of the modules."""


COMMANDS = {
    "demo": Entry(
        "deploy.demo.commands:app", "Bring everything up, stream transactions, watch alerts, verify them."
    ),
    "stack": Entry("deploy.local.commands:app", "Start and stop the embedded Kafka, Postgres and Debezium."),
    "job": Entry("deploy.job:app", "Create the topics of the streaming job, and run it."),
    "simulate": Entry("loadtests.simulator.commands:app", "Stream simulated or recorded transactions."),
    "models": Entry("models.commands:app", "Train, evaluate and list models."),
    "rollouts": Entry("service.rollouts.commands:app", "Propose, watch, promote and roll back models."),
    "features": Entry("feature_store.commands:app", "Compute point-in-time training sets."),
    "backtest": Entry("service.backtests.commands:app", "Try a policy or a model on the archived log."),
    "serve": Entry("service.commands:app", "Serve health, metrics and status over HTTP."),
    "tokens": Entry("service.security.token_commands:app", "Add, list and revoke tokens of the sidecar."),
    "audit": Entry("service.security.audit_commands:app", "List or verify the log of changes."),
    "verify": Entry(
        "loadtests.commands:app", "Audit the alerts against the input and an independent oracle."
    ),
    "replay": Entry("deploy.replay.commands:app", "Decide the log again, compare, switch to it, and back."),
    "dead-letters": Entry(
        "streaming_job.dead_letters.commands:app", "List dead letters; send mended ones again."
    ),
    "archive": Entry(
        "streaming_job.archive.commands:app", "Archive the topics as Parquet; prove it; expire files."
    ),
    "labels": Entry("streaming_job.labels.commands:app", "Add and show labels of transactions."),
    "schemas": Entry("streaming_job.schemas.commands:app", "Publish the schemas of framed transactions."),
    "bench": Entry("loadtests.bench.commands:app", "Measure speed and size; see docs/measurements.md."),
    "compare": Entry(
        "loadtests.compare.commands:compare",
        "Compare this job with its rewrites for Kafka Streams and Quix Streams.",
    ),
    "loadtest": Entry(
        "loadtests.locust_run.commands:app", "Load tests with locust, each audited; find the peak rate."
    ),
    "gameday": Entry(
        "loadtests.gamedays.commands:app", "Provoke a symptom of the runbook, observe it, repair it, audit."
    ),
    "capacity": Entry(
        "deploy.capacity_page:capacity",
        "Compute what a load needs, and which limits it meets first.",
    ),
    "explain-card": Entry("streaming_job.explain:app", "Show what the job knows about a card right now."),
}


PACKAGES = ("deploy", "feature_store", "loadtests", "models", "service", "streaming_job")
"""Packages of this project; an image may lack some of them, and other packages that a command needs."""
COMPLETION = ("install_completion", "show_completion")
"""Names of the options that typer adds to each command that may be a program."""


class LazyGroup(TyperGroup):
    """A command group that imports only the command that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stub command that has only the help line; None if there is no such command."""
        entry = COMMANDS.get(cmd_name)
        return TyperCommand(cmd_name, help=entry.help) if entry else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import and return the command that the arguments name."""
        name, _, rest = super().resolve_command(ctx, args)
        return (name, _load(name), rest) if name in COMMANDS else (name, None, rest)


def _load(name: str) -> Any:
    module_name, attribute = COMMANDS[name].target.split(":")
    try:
        target = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        if error.name is None:
            raise
        if error.name.partition(".")[0] in PACKAGES:
            if "." in error.name and not module_name.startswith(error.name):
                raise  # a package that is there lacks a module
            raise FraudError(
                f"`fraud {name}` is not part of this installation, which lacks {error.name}: each image has "
                "the programs that docs/deployment.md names; a checkout after `make setup` has all"
            ) from error
        raise FraudError(
            f"`fraud {name}` needs {error.name}, which is not installed here: run it in the image `tools`, "
            "or in a checkout after `make setup`"
        ) from error
    if not isinstance(target, typer.Typer):
        single = typer.Typer()
        single.command()(target)
        target = single
    command = typer.main.get_command(target)
    command.name = name
    # only the whole program could complete
    command.params = [parameter for parameter in command.params if parameter.name not in COMPLETION]
    return command


app = typer.Typer(cls=LazyGroup, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        from feature_store.release import RELEASE

        typer.echo(f"fraud {RELEASE}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the release.")
    ] = False,
) -> None:
    """Real-time card-fraud detection: exact features, exactly-once alerts."""
    from feature_store import spark_surroundings
    from streaming_job.environment import refuse_unknown

    refuse_unknown(os.environ)
    if "PYTHONPATH" in os.environ:
        spark_surroundings.require_own()


DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def end(program: Callable[[], object]) -> None:
    """Run a program; print a FraudError without a traceback and exit with its code."""
    try:
        try:
            program()
        finally:
            with suppress(BrokenPipeError):
                sys.stdout.flush()  # by Python at its end it would be tried too late for a message
    except Exception as error:
        known = error if isinstance(error, FraudError) else _of_full_disk(error) or _of_client_settings(error)
        if known is None:
            raise
        print(f"error: {printable(str(known))}", file=sys.stderr)
        sys.exit(known.exit_code)


def _of_full_disk(error: Exception) -> FraudError | None:
    """Return an error that names a full disk; None for other errors."""
    if not isinstance(error, OSError) or error.errno not in DISK_FULL:
        return None
    with suppress(OSError):  # what standard output still holds goes nowhere, or Python would try again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    file = error.filename or "standard output or a file"
    return OutputError(
        f"{file} cannot be written: {error.strerror}; free space, or direct the output elsewhere"
    )


def _of_client_settings(error: Exception) -> FraudError | None:
    """Return an error that names a Kafka client setting that librdkafka refuses; None for other errors."""
    library = sys.modules.get("confluent_kafka")  # an import of it here would make each command slower
    if library is None or not isinstance(error, library.KafkaException):
        return None
    cause = error.args[0]
    if not isinstance(cause, library.KafkaError) or cause.code() != library.KafkaError._INVALID_ARG:
        return None
    from streaming_job.environment import SettingsError

    return SettingsError(f"FRAUD_KAFKA or --kafka: {cause.str()}; see docs/settings.md")


def main() -> None:
    """Run the command line."""
    end(app)


if __name__ == "__main__":
    main()

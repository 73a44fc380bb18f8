"""`fraud job`: the streaming job in the foreground."""

import logging
import signal
import threading
from typing import Annotated

import typer
from pydantic import ValidationError

from feature_store.errors import FraudError
from streaming_job.settings import JobSettings

app = typer.Typer(no_args_is_help=True, help="Run the streaming job.")


class SettingsError(FraudError):
    """A FRAUD_... variable is missing or wrong."""


def _settings() -> JobSettings:
    try:
        return JobSettings()  # type: ignore[call-arg]  # from the environment
    except ValidationError as fault:
        faults = (
            f"FRAUD_{'__'.join(str(part) for part in one['loc']).upper()}: {one['msg'].lower()}"
            for one in fault.errors()
        )
        raise SettingsError(f"{'; '.join(faults)}; see docs/operations.md") from None


@app.command()
def topics(
    partitions: Annotated[int, typer.Option(min=1, help="Of the topics keyed by card.")] = 12,
    replication: Annotated[int, typer.Option(min=1, help="Replicas of each partition.")] = 3,
) -> None:
    """Create the job's topics where they are missing, and set their configuration."""
    from deploy.local.topics import create

    settings = _settings()
    create(
        settings.bootstrap_servers,
        settings.topics,
        partitions=partitions,
        replication=replication,
        kafka=settings.kafka,
    )
    typer.echo(f"topics are as they should be: {', '.join(settings.topics.model_dump().values())}")


@app.command()
def run(
    verbose: Annotated[bool, typer.Option(help="Log every batch.")] = True,
) -> None:
    """Run the job until SIGTERM or Ctrl-C; settings come from FRAUD_... variables.

    The batch that runs when the signal comes is finished, and the next start goes on after it.
    """
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    # it prints the traceback of whatever ends a batch; the job says what that was, in a line
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    settings = _settings()
    # heavy imports only once the settings are known to be good
    from deploy.local import jars
    from streaming_job.job import Job

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    job = Job(settings, jars.ensure("spark"), stop)
    logging.getLogger(__name__).info("job %s runs", settings.job_id)
    job.run()

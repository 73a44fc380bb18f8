"""`fraud job`: create the topics of the streaming job, show its permissions, run it in the foreground."""

import logging
import os
import shlex
import signal
import threading
import time
from typing import Annotated

import typer

from feature_store.errors import FraudError
from streaming_job import environment
from streaming_job.contracts.topic import Component
from streaming_job.permissions import needed
from streaming_job.settings import Arrival, JobSettings

log = logging.getLogger(__name__)
app = typer.Typer(
    no_args_is_help=True, help="Create the topics of the streaming job, show permissions, and run it."
)


class TopicsError(FraudError):
    """Topics exist with other settings than the job needs.

    Run the commands in the lines above the error, unless the other settings are intended.
    """


@app.command()
def topics(
    partitions: Annotated[int, typer.Option(min=1, help="Per topic keyed by card.")] = 12,
    replication: Annotated[int, typer.Option(min=1, help="Replicas of each partition.")] = 3,
) -> None:
    """Create the job's missing topics; compare existing ones with the job's needs, and leave them as is.

    Example: fraud job topics --partitions 4 --replication 1
    """
    from deploy.local.topics import create

    settings = environment.settings(JobSettings)
    differences = create(
        settings.bootstrap_servers,
        settings.topics,
        replay=settings.arrival is Arrival.CREATE,
        partitions=partitions,
        replication=replication,
        alter=False,
        kafka=settings.kafka,
    )
    typer.echo(f"topics exist: {', '.join(settings.topics.model_dump().values())}")
    for line in differences:
        typer.echo(line)
    if differences:
        raise TopicsError(
            f"existing topics differ in {len(differences)} points from what the job needs, see above; alter "
            "them unless the difference is intended: docs/operations.md, Topics"
        )


@app.command()
def permissions(
    principal: Annotated[
        str, typer.Argument(help="Principal that gets the permissions, for example User:card-fraud.")
    ],
    component: Annotated[
        Component, typer.Option("--of", help="Program that the principal runs.")
    ] = Component.JOB,
) -> None:
    """Print the permissions that a component needs on the brokers, as commands of Kafka's kafka-acls.sh.

    Example: fraud job permissions User:card-fraud --of job
    """
    settings = environment.settings(JobSettings)
    command = ["kafka-acls.sh", "--bootstrap-server", settings.bootstrap_servers, "--add"]
    for permission in needed(component, settings):
        typer.echo(shlex.join([*command, "--allow-principal", principal, *permission.options()]))


@app.command()
def run(
    verbose: Annotated[bool, typer.Option(help="Log every epoch.")] = True,
) -> None:
    """Run the job until SIGTERM or Ctrl-C; settings come from FRAUD_... variables.

    A signal ends the running epoch early and saves the state, so the next start has nothing to decide again.

    Example: fraud job run
    """
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    # py4j logs the traceback of any error that ends an epoch; the job logs the error in one line
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # py4j also logs, through the root logger, failed calls to a JVM that is shutting down
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    settings = environment.settings(JobSettings)
    # heavy imports only after the settings are validated
    from deploy.local import jars
    from streaming_job.runtime import session
    from streaming_job.runtime.workers import PRIVATE

    os.umask(PRIVATE)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    class_path = jars.ensure("spark")
    with session.launching(settings, class_path) as launch:
        from streaming_job.runtime.preconditions import require_inputs

        require_inputs(settings)
        launch.begin()
        # while the JVM starts
        from feature_store.jit import CACHE
        from streaming_job.job import Job
        from streaming_job.runtime import leftovers

        leftovers.remove(settings.work_dir, CACHE, time.time())
        job = Job(settings, launch, stop)
        log.info("job %s runs", settings.job_id)
        job.run()

"""`fraud job`: create the topics of the streaming job, show its permissions, run it in the foreground."""

import json
import logging
import os
import shlex
import signal
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from feature_store.errors import FraudError
from feature_store.utc import moment_of
from streaming_job import environment
from streaming_job.contracts.topic import Component
from streaming_job.log.partitioner import Partitioner
from streaming_job.permissions import needed
from streaming_job.settings import Arrival, JobSettings

if TYPE_CHECKING:
    from streaming_job.runtime.jvm import SubmittedJvm
    from streaming_job.takeover import moving

log = logging.getLogger(__name__)
app = typer.Typer(
    no_args_is_help=True,
    help="Create the topics of the streaming job, show permissions and fixed choices, and run it.",
)


class TopicsError(FraudError):
    """Topics exist with other settings than the job needs.

    Run the commands in the lines above the error, unless the other settings are intended.
    """


class NoProgressError(FraudError):
    """The job has written nothing yet, so its first start has fixed nothing.

    Start it with `fraud job run`, or correct `FRAUD_JOB_ID` or `FRAUD_TOPICS__JOB_PROGRESS`.
    """


@app.command()
def topics(
    partitions: Annotated[
        int, typer.Option(min=1, help="Of the transactions, and of each topic that has as many.")
    ] = 12,
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
    typer.echo(f"topics exist: {', '.join(name for name, _ in settings.topics.rows())}")
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
def status(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    move_to: Annotated[
        str | None,
        typer.Option(
            help="Show the steps that move the cards to this topic instead, and which are done. The present "
            "topic: to partitions that it has got, or to another partitioner."
        ),
    ] = None,
    partitioner: Annotated[
        Partitioner | None, typer.Option(help="With --move-to: of the producers there; default: as now.")
    ] = None,
) -> None:
    """Show each choice that the job's first start has fixed, its value, and the command that changes it.

    The values are those of the job that has written last, running or not; a setting of this environment that
    differs is shown beside it.

    Example: fraud job status
    """
    from streaming_job.progress.choices import choices
    from streaming_job.takeover.handover import newest_records

    settings = environment.settings(JobSettings)
    records = newest_records(settings)
    if not records:
        raise NoProgressError(
            f"job {settings.job_id} has written nothing to {settings.topics.job_progress}: nothing is fixed; "
            "start it with `fraud job run`, or correct FRAUD_JOB_ID"
        )
    if move_to is not None:
        _show_move(records, settings, move_to, partitioner, as_json=as_json)
        return
    found = list(choices(records, settings))
    newest = max(records.values(), key=lambda record: int(record["written_at"]))
    if as_json:
        last = {name: newest.get(name) for name in ("query_id", "written_at", "takeover")}
        typer.echo(json.dumps({**last, "choices": [asdict(choice) for choice in found]}))
        return
    written = moment_of(newest["written_at"])
    typer.echo(f"job {settings.job_id}, query {newest['query_id']}, has last written at {written:%F %T} UTC")
    if (takeover := newest.get("takeover")) is not None:
        at = moment_of(takeover["at"])
        typer.echo(
            f"it took over from query {takeover['query_id']} (release {takeover['release']}, "
            f"{takeover['key_groups']} key groups) at {at:%F %T} UTC, asked by {takeover['asked_by']}"
        )
    for choice in found:
        here = f"; this environment has {choice.here}" if choice.differs else ""
        typer.echo(f"{choice.name}: {choice.running or choice.here}{here}")
        typer.echo(f"    to change it: {choice.change}")


def _show_move(
    records: "moving.Records",
    settings: JobSettings,
    target: str,
    partitioner: Partitioner | None,
    *,
    as_json: bool,
) -> None:
    from streaming_job.takeover import moving

    now = moving.layout_of(records)
    ends = {topic: moving.topic_ends(settings, topic) for topic in (now.topic, target)}
    steps = moving.stages(records, target, partitioner or now.partitioner, ends)
    if as_json:
        typer.echo(json.dumps([asdict(step) for step in steps]))
        return
    typer.echo(f"the job decides {now}")
    following = next((number for number, step in enumerate(steps) if not step.is_done), len(steps))
    for number, step in enumerate(steps):
        state = "done" if step.is_done else "now" if number == following else "then"
        typer.echo(f"{number + 1}. [{state}] {step.text}")


@app.command()
def run(
    verbose: Annotated[bool, typer.Option(help="Log every epoch.")] = True,
) -> None:
    """Run the job until SIGTERM or Ctrl-C; settings come from FRAUD_... variables.

    A signal ends the running epoch early and saves the state, so the next start has nothing to decide again.

    Example: fraud job run
    """
    _log(verbose)
    settings = environment.settings(JobSettings)
    _serve(settings, threading.Event(), None)


def run_submitted() -> None:
    """Run the job in the JVM of `spark-submit`, which has started this process: deploy/spark/fraud-job.py."""
    _log(True)
    environment.refuse_unknown(os.environ)
    from deploy.local import jars
    from streaming_job.runtime import submitted
    from streaming_job.runtime.jvm import SubmittedJvm
    from streaming_job.runtime.spark_options import BARE_FILES

    jvm, stop = SubmittedJvm(), threading.Event()
    jvm.on_signals(stop.set)
    settings = submitted.settings(jvm.properties())
    jvm.require_class(BARE_FILES, os.pathsep.join(map(str, jars.of_job(settings))))
    _serve(settings, stop, jvm)


def _log(verbose: bool) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    # py4j logs the traceback of any error that ends an epoch; the job logs the error in one line
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # py4j also logs, through the root logger, failed calls to a JVM that is shutting down
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)


def _serve(settings: JobSettings, stop: threading.Event, jvm: "SubmittedJvm | None") -> None:
    """Run the job until a stop is requested, in a JVM of its own or in `jvm`."""
    # heavy imports only after the settings are validated
    from deploy.local import jars
    from streaming_job.runtime import session
    from streaming_job.runtime.workers import PRIVATE

    os.umask(PRIVATE)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    class_path = jars.of_job(settings)
    with session.launching(settings, class_path, jvm) as launch:
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

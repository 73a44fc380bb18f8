"""`fraud verify` audits a job's output against its input: the whole, a sample continuously, or one alert."""

import json
import logging
import signal
import sys
from pathlib import Path
from threading import Event
from typing import Annotated

import typer
from rich.console import Console

from feature_store.option_groups import refuse_ignored
from feature_store.output_files import require_place
from feature_store.progress_bar import progress_bar
from feature_store.spark_surroundings import LOOPBACK
from loadtests.audit import endless, one_alert
from loadtests.audit import verify as audit
from loadtests.audit.archived_log import open_log
from loadtests.audit.core import partition_ends
from loadtests.audit.judging import from_registry, in_processes
from loadtests.audit.topic_log import TopicLog
from loadtests.rig import report as reporting
from models import loading
from streaming_job import environment
from streaming_job.settings import JobSettings

app = typer.Typer()
MANY = 200_000
"""With more transactions than this, each partition is judged in its own process."""


OF_FOLLOW = ("share", "behind", "metrics_port", "metrics_host", "state")
"""Parameters that only --follow uses."""


@app.command()
def verify(
    context: typer.Context,
    alert_id: Annotated[
        str | None, typer.Argument(help="Rebuild this alert, byte for byte, and show what it depends on.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write the verdict to this JSON file.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Audit a sample of the running job's output until stopped.")
    ] = False,
    share: Annotated[
        float, typer.Option(help="Share of the cards; with --follow.", min=0.0001, max=1.0)
    ] = 0.05,
    behind: Annotated[
        float, typer.Option(help="Minimal age of audited records, seconds; with --follow.", min=0)
    ] = 60,
    metrics_port: Annotated[
        int, typer.Option(help="Port of the metrics; 0: any; with --follow.", min=0, max=65535)
    ] = 9109,
    metrics_host: Annotated[
        str, typer.Option(help="Address on which the metrics are served; with --follow.")
    ] = LOOPBACK,
    state: Annotated[
        Path | None,
        typer.Option(
            help="File with the audit's state, from which a restart continues; default: a restart reads "
            "the log from its beginning; with --follow."
        ),
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(help="Archive in which the log begins; what the topics have after it is read there."),
    ] = None,
) -> None:
    """Recompute alerts and dead letters from the input topics, and compare them with the outputs.

    Settings come from FRAUD_... variables, as for the job. The exit status is 1 if anything is missing,
    duplicated or unexpected, if the progress records contradict the outputs or the oracle, or if the given
    alert differs from its recomputation or was not written exactly once. With --follow, findings are logged
    and exported as metrics.

    Example: fraud verify --report verdict.json
    """
    if not follow:
        refuse_ignored(context, OF_FOLLOW, "for --follow only, which audits a sample: give --follow, too")
    settings = environment.settings(JobSettings)
    if alert_id is not None and follow:
        raise typer.BadParameter("give either an alert id or --follow")
    if report is not None and follow:
        raise typer.BadParameter("give either --report or --follow, which exports its findings as metrics")
    if archive is not None and alert_id is not None:
        raise typer.BadParameter("with --archive the whole log is audited; leave out the alert id")
    require_place(report)
    if settings.merchant_facts and (follow or alert_id is not None):
        raise typer.BadParameter(
            "with FRAUD_MERCHANT_FACTS only the whole log can be audited: merchant features depend on "
            "all cards"
        )
    if follow:
        options = endless.EndlessOptions(
            share=share, behind_s=behind, state=state, metrics_port=metrics_port, metrics_host=metrics_host
        )
        run_endlessly(settings, options, archive=archive)
    elif alert_id is not None:
        _audit_alert(settings, alert_id, report)
    else:
        _audit_all(settings, report, archive)


def _audit_all(settings: JobSettings, report: Path | None, archive: str | None) -> None:
    verdict = run(settings, archive=archive)
    result = verdict.report()
    reporting.write(report, result)
    typer.echo(json.dumps({name: result[name] for name in list(result)[:7]}))
    for line in (*verdict.findings.examples, *verdict.problems):
        typer.echo(line, err=True)
    if not verdict.is_clean:
        sys.exit(1)


def _audit_alert(settings: JobSettings, alert_id: str, report: Path | None) -> None:
    directory = settings.work_dir / "models"
    rebuilt = one_alert.rebuild(
        TopicLog(settings.bootstrap_servers, settings.kafka),
        settings,
        lambda ref: loading.load(ref, settings.mlflow_tracking_uri, directory),
        alert_id,
    )
    result = rebuilt.report()
    reporting.write(report, result)
    typer.echo(json.dumps(result, indent=2))
    if not rebuilt.is_clean:
        sys.exit(1)


def run_endlessly(
    settings: JobSettings, options: endless.EndlessOptions, *, archive: str | None = None
) -> None:
    """Audit until SIGINT or SIGTERM, then save the state.

    Args:
        archive: archive in which the log begins; default: only the topics are read.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    endless.follow(
        open_log(settings, archive),
        settings,
        from_registry(settings),
        options,
        stop,
        started=lambda port: typer.echo(f"metrics at http://{options.metrics_host}:{port}/metrics", err=True),
    )


def run(
    settings: JobSettings, *, console: Console | None = None, archive: str | None = None
) -> audit.AuditResult:
    """Audit a job, with a progress bar on a terminal.

    Args:
        archive: archive in which the log begins; default: only the topics are read.
    """
    log = open_log(settings, archive)
    reached = audit.reached_by(log, settings)
    many = sum(partition_ends(reached.committed, settings.topics.transactions).values()) > MANY
    with progress_bar(console) as bar:
        task = bar.add_task("reading", total=None)
        return audit.verify(
            log,
            settings,
            from_registry(settings),
            judge=in_processes(settings, archive) if many else None,
            reached=reached,
            progress=lambda text, done, total: bar.update(
                task, description=text, completed=done, total=total or None
            ),
        )

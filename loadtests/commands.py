"""`fraud verify`: audit a job against its input, from outside."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from loadtests.audit import verify as audit
from loadtests.audit.judging import from_registry, in_processes, partition_ends
from loadtests.audit.topic_log import TopicLog
from streaming_job import environment
from streaming_job.settings import JobSettings

app = typer.Typer(add_completion=False)
MANY = 200_000
"""More transactions than this are worth the start of a process for each partition."""


@app.command()
def verify(
    report: Annotated[Path | None, typer.Option(help="Write the verdict there, as JSON.")] = None,
) -> None:
    """Recompute from the input topics which alerts and dead letters had to be, and compare.

    Settings come from FRAUD_... variables, as for the job. The exit status is 1 if anything is missing,
    duplicated or unexpected, or if the job's own account in job-progress does not agree.
    """
    settings = environment.settings(JobSettings)
    verdict = run(settings)
    found = verdict.report()
    if report is not None:
        report.write_text(json.dumps(found, indent=2) + "\n")
    typer.echo(json.dumps({name: found[name] for name in list(found)[:7]}))
    for line in (*verdict.findings.examples, *verdict.problems):
        typer.echo(line, err=True)
    if not verdict.is_clean:
        sys.exit(1)


def run(settings: JobSettings, *, console: Console | None = None) -> audit.Verdict:
    """Audit a job, with a progress bar on a terminal.

    Raises:
        FraudError: a topic or a model cannot be had.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = console or Console(stderr=True)
    log = TopicLog(settings.bootstrap_servers, settings.kafka)
    committed = audit.committed_by(log, settings)
    many = sum(partition_ends(committed, settings.topics.transactions).values()) > MANY
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=None)
        return audit.verify(
            log,
            settings,
            from_registry(settings),
            judge=in_processes(settings) if many else None,
            committed=committed,
            progress=lambda what, done, total: bar.update(
                task, description=what, completed=done, total=total or None
            ),
        )

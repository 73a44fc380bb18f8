"""`fraud archive`: write topics to an archive, prove it, and let its files expire."""

import json
import os
import signal
import sys
import time
from contextlib import ExitStack, suppress
from threading import Event
from typing import Annotated

import typer

from feature_store.archive import commit
from feature_store.archive.layout import ArchiveError, day_of
from feature_store.archive.reader import Archive
from feature_store.archive.storage import Storage, named_faults
from feature_store.catalogue import DAY_MS
from feature_store.spark_surroundings import LOOPBACK
from feature_store.utc import moment_of
from streaming_job import environment, metric_families
from streaming_job.archive.archiver import Report, Timing, archive
from streaming_job.archive.metrics import ArchiveMetrics, listed_until_s
from streaming_job.archive.verify import Proof, verify_files, verify_topics
from streaming_job.contracts.topics import TABLE
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.runtime import pauses

NICE = 10
"""Priority of the archiver: the job, if it runs on the same machine, comes first."""
app = typer.Typer(
    no_args_is_help=True, help="Archive the topics as Parquet; prove the archive; let its files expire."
)
Place = Annotated[str, typer.Argument(help="Directory, or URI as pyarrow knows them, such as s3://...")]


@app.command()
def run(
    place: Place,
    until_now: Annotated[
        bool, typer.Option("--until-now", help="Archive what the topics have now, and end.")
    ] = False,
    tail_every: Annotated[
        float, typer.Option(min=1, help="Seconds after which new records are listed before a file is full.")
    ] = 600,
    report_every: Annotated[float, typer.Option(min=1, help="Seconds between two lines of output.")] = 10,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Record as lost what retention deleted before it was archived."),
    ] = False,
    switched: Annotated[
        bool,
        typer.Option(
            "--switched",
            help="The job was switched to a replay: archive its rollouts and merchant facts instead.",
        ),
    ] = False,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the metrics. 0: any free port.")
    ] = 9110,
    metrics_host: Annotated[str, typer.Option(help="Address on which the metrics are served.")] = LOOPBACK,
) -> None:
    """Write every topic that decides or is decided to an archive, until SIGTERM or Ctrl-C.

    Settings come from FRAUD_... variables, as for the job. It can be killed at any time, and started twice.
    Without --until-now it exports metrics.

    Example: fraud archive run /data/archive
    """
    settings = environment.settings(LetterSettings)
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    os.nice(NICE)
    timing, storage = Timing(tail_every, report_every), Storage(place)
    with named_faults(place):
        metrics = ArchiveMetrics(listed_until_s(storage))

    def tell(report: Report) -> None:
        metrics.export(report)
        typer.echo(
            f"archived {report.records:,} records; {report.unread:,} offsets behind the log, "
            f"{report.unlisted:,} not listed yet"
        )

    with ExitStack() as stack:
        stack.enter_context(suppress(pauses.StoppedError))
        stack.enter_context(pauses.ended_by(stop.is_set))
        if not until_now:
            port, end = metric_families.serve(metrics.registry, metrics_port, metrics_host)
            stack.callback(end)
            typer.echo(f"metrics: http://{metrics_host}:{port}/metrics")
        archive(
            settings, storage, timing, stop, tell,
            until_now=until_now, accept_loss=accept_loss, switched=switched,
        )  # fmt: skip


@app.command()
def verify(
    place: Place,
    files_only: Annotated[
        bool, typer.Option("--files-only", help="Prove files and manifests, without the brokers.")
    ] = False,
) -> None:
    """Prove an archive: its files against the manifests, and its records against the topics as they are now.

    The exit status is 1 if anything is missing or differs.

    Example: fraud archive verify /data/archive --files-only
    """
    settings = None if files_only else environment.settings(LetterSettings)
    proof, archived = Proof(), Archive(place)
    with named_faults(place):
        verify_files(archived, proof)
        if settings is not None and not proof.problems:
            verify_topics(archived, settings, proof)
    typer.echo(
        json.dumps(
            {
                "records": proof.records,
                "bytes": proof.bytes,
                "compared_with_topics": proof.compared,
                "offsets_without_record": dict(proof.holes),
                "problems": len(proof.problems),
            }
        )
    )
    for problem in proof.problems:
        typer.echo(problem, err=True)
    if proof.problems:
        sys.exit(1)


@app.command()
def expire(
    place: Place,
    older_than: Annotated[int, typer.Option(min=1, help="Days since the newest arrival of a file.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these topics, by their field of the table of topics; repeatable. Default: all except "
            "those that are kept for ever"
        ),
    ] = None,
) -> None:
    """Delete the files of an archive all of whose records arrived longer ago than that.

    Example: fraud archive expire /data/archive --older-than 800
    """
    archived = Archive(place)
    chosen = [name for name in archived.topics if TABLE[name].retention.days is not None]
    if unknown := set(topic or ()) - set(archived.topics):
        raise ArchiveError(
            f"{place} does not have {', '.join(sorted(unknown))}; it has {', '.join(archived.topics)}"
        )
    now_ms = int(time.time() * 1000)
    before_ms = now_ms - older_than * DAY_MS
    files = size = 0
    with named_faults(place):
        for each in (*archived.former(), archived):
            for name in each.topics.keys() & (topic or chosen):
                for partition in each.partitions(name):
                    spans = commit.expire(each.storage, each.topics[name], partition, before_ms)
                    files += sum(bool(span.name) for span in spans)
                    size += sum(span.bytes for span in spans)
                    first = next(each.manifest(name, partition).files(), None)
                    if first is not None and first.most_ms > now_ms:
                        typer.echo(
                            f"{each.topics[name]}-{partition}: nothing is deleted from offset {first.first} "
                            f"on before {day_of(first.most_ms)}, of which a record there is dated",
                            err=True,
                        )
    before = moment_of(before_ms).isoformat(timespec="seconds")
    typer.echo(f"deleted {files} files of {size:,} bytes, with arrivals before {before}")

"""Runs the oracle over the transactions of a log in one process for each partition.

A card belongs to one partition (its transactions elsewhere are dead letters), so partitions are judged
independently. Every process reads the tables, and the merchants' payments of all partitions, for itself.
"""

import gc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait

from feature_store.errors import FraudError
from loadtests.audit.archived_log import open_log
from loadtests.audit.core import AuditCore, Ends, Judged, Load
from loadtests.audit.memory import Memory
from loadtests.audit.moves import Stretch, classes
from loadtests.audit.topic_log import Log
from models import loading
from streaming_job.settings import JobSettings


class JudgeError(FraudError):
    """There is no rollout to judge by, or a judging process ended.

    Promote a model; or check the log and the available memory.
    """


Unavailable = Mapping[str, Collection[int]]
"""`History.unavailable` by topic of rollouts."""
Judge = Callable[[Unavailable, Ends, Sequence[Stretch]], Iterator[Judged]]
"""Judges all transactions of some stretches, by the tables before the ends."""


def in_processes(settings: JobSettings, archive: str | None = None) -> Judge:
    """Return a judge that runs one process for each partition; the models come from the registry.

    If the transactions have moved, each process judges the partitions that may have had the same cards.

    Args:
        archive: archive with which the log begins, see `open_log`.
    """

    def judge(unavailable: Unavailable, ends: Ends, parts: Sequence[Stretch]) -> Iterator[Judged]:
        context = get_context("spawn")
        readers: list[Connection] = []
        for own in shares(parts):
            reader, writer = context.Pipe(duplex=False)
            # daemons end with this process; if it is killed, their next report fails and they end too
            context.Process(
                target=_judge_partitions,
                args=(settings, archive, unavailable, ends, own, writer),
                daemon=True,
            ).start()
            writer.close()
            readers.append(reader)
        while readers:
            ready = set(wait(readers))
            for reader in [reader for reader in readers if reader in ready]:
                try:
                    report = reader.recv()
                except EOFError:
                    raise JudgeError("a judging process ended unexpectedly; see its output above") from None
                if isinstance(report, Exception):
                    raise report
                if report is None:
                    readers.remove(reader)
                else:
                    yield report

    return judge


def shares(parts: Sequence[Stretch]) -> Iterator[list[Stretch]]:
    """Yield the stretches of each process: those of partitions that have no cards in common with others."""
    count = classes(parts)
    for number in range(count):
        own = [
            part._replace(ends={p: end for p, end in part.ends.items() if p % count == number})
            for part in parts
        ]
        if any(part.ends for part in own):
            yield own


def judged_alone(
    log: Log, settings: JobSettings, load: Load, unavailable: Unavailable, ends: Ends, own: Sequence[Stretch]
) -> Iterator[Judged]:
    """Judge the stretches of one process."""
    memory = Memory.empty(settings)
    for topic, offsets in unavailable.items():
        memory.histories[topic].unavailable |= set(offsets)
    core = AuditCore(log, settings, load, memory)
    core.read_tables(ends)
    yield from core.judge(own)


def from_registry(settings: JobSettings) -> Load:
    """Return a function that loads models from the registry and checks their digests, as the job does."""
    directory = settings.work_dir / "models"
    return lambda scorer: loading.load(scorer.model, settings.mlflow_tracking_uri, directory)


def _judge_partitions(
    settings: JobSettings,
    archive: str | None,
    unavailable: Unavailable,
    ends: Ends,
    own: Sequence[Stretch],
    reports: Connection,
) -> None:
    gc.disable()  # histories have millions of objects and no cycles: collecting garbage only costs time
    try:
        log, load = open_log(settings, archive), from_registry(settings)
        for judged in judged_alone(log, settings, load, unavailable, ends, own):
            reports.send(judged)
        reports.send(None)
    except BrokenPipeError:
        pass  # the reader has ended
    except FraudError as error:
        reports.send(error)

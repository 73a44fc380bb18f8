"""A backtest of an archive by the settings of the environment: in this process, or in one of its own."""

import logging
import os
import resource
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from feature_store.errors import FraudError
from models import registry
from streaming_job import environment
from streaming_job.backtest.log import ArchiveLog
from streaming_job.backtest.request import Request, backtest
from streaming_job.backtest.run import Progress
from streaming_job.backtest.settings import BacktestSettings, decided_by_the_job

SMALL = 200_000
"""Number of transactions up to which a second process would cost more time than it saves."""
NICE = 19
"""Priority of a backtest beside the sidecar."""
SHARE = 0.75
"""Part of the memory that is left which a backtest beside the sidecar may take."""
SELF, CGROUPS = Path("/proc/self"), Path("/sys/fs/cgroup")


def report_of(
    archive: str, request: Request, processes: int | None = None, progress: Progress = lambda rows: None
) -> dict[str, Any]:
    """Run a backtest, and return its report.

    Args:
        processes: None: as many as there are cores, but one for a small archive.
        progress: called in this process, so only with one process.
    """
    settings, log = environment.settings(BacktestSettings), ArchiveLog(archive)
    decided = decided_by_the_job(log, settings)
    transactions = settings.topics.transactions
    cores = processes or (1 if log.rows(transactions) <= SMALL else os.cpu_count() or 1)
    return backtest(
        log,
        settings.job(),
        request,
        decided,
        lambda name, version: registry.find(name, version, settings.mlflow_tracking_uri),
        min(cores, len(log.partitions(transactions)) or 1),
        progress,
    )


def memory_left() -> int:
    """Return the memory, bytes, that the machine has free, or less, if a limit of cgroup v2 leaves less.

    Raises:
        OSError: this is not Linux.
    """
    left = 1024 * _numbers(Path("/proc/meminfo"))["MemAvailable:"]
    group = CGROUPS / (SELF / "cgroup").read_text().strip().rpartition("::/")[2]
    with suppress(OSError, ValueError):  # the root has no limit; that of another group may be "max"
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        left = min(left, limit - used + _numbers(group / "memory.stat")["inactive_file"])
    return left


def _numbers(file: Path) -> dict[str, int]:
    lines = map(str.split, file.read_text().splitlines())
    return {name: int(number) for name, number, *_ in lines}


def limit_memory(left: int) -> None:
    """Let this process take its share of `left` bytes more; beyond it an allocation raises a MemoryError.

    Otherwise the kernel would kill it, and the sidecar in the same container with it.
    """
    pages = int((SELF / "statm").read_text().split()[5])
    most = pages * resource.getpagesize() + int(SHARE * max(0, left))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def work(results: Connection, archive: str, request: Request) -> None:
    """Run a backtest in a process of the sidecar; send `decided`, records so far, then `report` or `error`.

    A sidecar that is gone no longer receives, which ends the process.
    """
    with suppress(OSError):  # this is not Linux
        limit_memory(memory_left())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the sidecar ends this process
    os.nice(NICE)
    decided = 0

    def tell(rows: int) -> None:
        nonlocal decided
        decided += rows
        results.send(("decided", decided))

    try:
        results.send(("report", report_of(archive, request, 1, tell)))
    except FraudError as fault:
        results.send(("error", str(fault)))
    except MemoryError:
        results.send(
            (
                "error",
                "the backtest needs more memory than is left; ask for fewer days, or give the sidecar more",
            )
        )
    except BrokenPipeError:
        logging.getLogger(__name__).warning("the sidecar is gone; the backtest ends")

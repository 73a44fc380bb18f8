"""The backtests of a sidecar: one at a time, each in a process of its own; the newest are kept in memory."""

import logging
import multiprocessing
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Lock, Thread
from typing import Any

from service.backtests import running
from service.security.problems import Problem
from streaming_job.backtest.request import Request

log = logging.getLogger(__name__)
KEPT = 20
"""Number of backtests that are kept."""
SPAWN = multiprocessing.get_context("spawn")


class State(StrEnum):
    """States of a backtest."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass
class Backtest:
    """A backtest that was asked for."""

    id: str
    by: str
    """Name of the caller."""
    begun_at: int
    """Milliseconds since 1970-01-01 UTC."""
    asked: dict[str, Any]
    """Body of the request."""
    state: State = State.RUNNING
    decided: int = 0
    """Records of the transactions that are read, those of the history included."""
    error: str | None = None
    report: dict[str, Any] | None = field(default=None, repr=False)


class BacktestJobs:
    """Starts backtests over an archive, and knows what becomes of them."""

    def __init__(self, archive: str, clock: Callable[[], float]) -> None:
        """Prepare; nothing is read.

        Args:
            archive: directory or URI; empty: there is none, and every start is refused.
        """
        self._archive, self._clock, self._lock = archive, clock, Lock()
        self._jobs: dict[str, Backtest] = {}
        self._process: BaseProcess
        self._reader: Thread

    def start(self, request: Request, asked: dict[str, Any], by: str) -> Backtest:
        """Start a backtest.

        Raises:
            Problem: there is no archive, or a backtest is running (409).
        """
        if not self._archive:
            raise Problem(
                409, "no_archive", "this sidecar has no archive; set FRAUD_ARCHIVE and start it again"
            )
        with self._lock:
            if running_now := [job.id for job in self._jobs.values() if job.state is State.RUNNING]:
                raise Problem(
                    409, "backtest_running", f"backtest {running_now[0]} is running; wait or delete it"
                )
            job = Backtest(uuid.uuid4().hex[:12], by, int(self._clock() * 1000), asked)
            for old in list(self._jobs)[: max(0, len(self._jobs) + 1 - KEPT)]:
                del self._jobs[old]
            receiver, sender = SPAWN.Pipe(duplex=False)
            process = SPAWN.Process(
                target=running.work, args=(sender, self._archive, request), name="backtest", daemon=True
            )
            try:
                process.start()
            except OSError as fault:
                receiver.close()
                raise Problem(503, "no_process", f"no process can be started ({fault}); try later") from fault
            finally:
                sender.close()  # so that the end of the process is the end of what is received
            self._jobs[job.id] = job
            self._process = process
            self._reader = Thread(target=self._follow, args=(job, process, receiver), daemon=True)
            self._reader.start()
        return job

    def find(self, backtest_id: str) -> Backtest:
        """Return a backtest.

        Raises:
            Problem: there is none of this id (404).
        """
        try:
            return self._jobs[backtest_id]
        except KeyError:
            raise Problem(
                404,
                "unknown_backtest",
                f"no backtest {backtest_id}; the newest {KEPT} since the start are kept",
            ) from None

    def newest_first(self) -> Iterator[Backtest]:
        """Yield the backtests."""
        yield from reversed(list(self._jobs.values()))

    def cancel(self, backtest_id: str) -> Backtest:
        """End a backtest, unless it has ended.

        Raises:
            Problem: there is none of this id (404).
        """
        job = self.find(backtest_id)
        with self._lock:
            if job.state is not State.RUNNING:
                return job
            job.state, reader = State.CANCELLED, self._reader
            self._process.kill()
        reader.join()
        return job

    def stop(self) -> None:
        """End the running backtest."""
        for job in list(self._jobs.values()):
            self.cancel(job.id)

    def _follow(self, job: Backtest, process: BaseProcess, results: Connection) -> None:
        """Receive what the process sends; the backtest ends once the process is gone."""
        kind, value = "error", "the process of the backtest has ended without a report; see the sidecar's log"
        with results, suppress(EOFError, OSError):  # OSError: it was killed within a message
            while (received := results.recv())[0] == "decided":
                job.decided = received[1]
            kind, value = received
        process.kill()  # it has nothing left to do, but would take seconds to unload its libraries
        process.join()
        with self._lock:
            if job.state is State.RUNNING:
                setattr(job, kind, value)
                job.state = State.DONE if kind == "report" else State.FAILED
        log.info("backtest %s: %s", job.id, job.state)

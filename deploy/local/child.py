"""Child processes that end with the process that started them: each is a context manager that kills it."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from deploy.local import launch
from deploy.local.errors import ProcessError
from deploy.local.processes import descendants, kill_all, wait_until_ready

END_S = 300.0
"""Time limit for the end of a process on a busy machine, seconds."""


class Child:
    """A child process with its output in a log; a context manager that kills it and all that it started."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        cwd: Path | None = None,
        own_session: bool = True,
    ) -> None:
        """Start the process.

        Args:
            name: how errors call it, such as "the engine".
            log: file to which its output is appended.
            environment: variables in addition to those of this process.
            cwd: its working directory; None: that of this process.
            own_session: whether signals of the terminal, such as Ctrl-C, do not reach it.
        """
        self.name, self.log_file = name, log
        variables = {**os.environ, **(environment or {})}
        self._process = launch.start(command, log, variables, cwd=cwd, own_session=own_session)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def log(self) -> str:
        """The whole content of its log."""
        return self.log_file.read_text(errors="replace")

    @property
    def runs(self) -> bool:
        """Whether it still runs."""
        return self.ended_with is None

    @property
    def ended_with(self) -> int | None:
        """Its exit code, that of a signal negative; None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Check that it runs.

        Raises:
            ProcessError: it ended; the message has the tail of its log.
        """
        if not self.runs:
            end = launch.tail(self.log_file)
            raise ProcessError(f"{self.name} ended; its log {self.log_file} ends with:\n{end}")

    def wait_until(self, ready: Callable[[], bool], deadline_s: float) -> None:
        """Wait until `ready()` returns true.

        Raises:
            ProcessError: it ended, or the deadline passed; the message has the tail of its log.
        """
        wait_until_ready(ready, lambda: self.runs, name=self.name, log=self.log_file, deadline_s=deadline_s)

    def exit_code(self, patience_s: float = END_S) -> int:
        """Wait until it ends; return its exit code.

        Raises:
            ProcessError: it still runs after `patience_s`.
        """
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise ProcessError(
                f"{self.name} does not end within {patience_s:.0f} s; see {self.log_file}"
            ) from None

    def ask_to_end(self) -> None:
        """Send SIGTERM, if it still runs."""
        self._process.terminate()

    def terminate(self, patience_s: float = END_S) -> int:
        """Stop it gracefully with SIGTERM; return its exit code."""
        self.ask_to_end()
        return self.exit_code(patience_s)

    def descendants(self) -> list[psutil.Process]:
        """Return the processes that it and its descendants started; empty if it has ended."""
        with suppress(psutil.NoSuchProcess):
            return descendants(psutil.Process(self.pid))
        return []

    def kill_alone(self) -> list[psutil.Process]:
        """Kill it with SIGKILL, but not the processes that it started, and return these."""
        family = {process.pid: process for process in (*self.descendants(), *self._session())}
        family.pop(self.pid, None)
        self._process.kill()
        self._process.wait()
        return list(family.values())

    def kill(self) -> None:
        """Kill it and all that it started with SIGKILL, and wait until they have ended."""
        kill_all(self.kill_alone())

    def _session(self) -> list[psutil.Process]:
        """Return the processes of its session: if it has ended, those that it started have another parent."""
        return [process for process in psutil.process_iter() if _session_id(process) == self.pid]


def _session_id(process: psutil.Process) -> int | None:
    with suppress(ProcessLookupError):
        return os.getsid(process.pid)
    return None


def stop(children: Sequence[Child], patience_s: float) -> None:
    """Stop processes gracefully, all at once: SIGTERM, and SIGKILL to what still runs after `patience_s`."""
    end = time.monotonic() + patience_s
    for child in children:
        child.ask_to_end()
    for child in children:
        with suppress(ProcessError):
            child.exit_code(max(0.1, end - time.monotonic()))
        child.kill()

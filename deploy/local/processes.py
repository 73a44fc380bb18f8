"""Server processes: started in sessions of their own, recognised again later, stopped for certain."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.local.errors import StackError

SAME_START_S = 10.0
"""Tolerance between recorded and present start time: corrections of the clock move the latter."""

LOG_LIMIT = 16 * 1024 * 1024
"""A log larger than this many bytes is set aside (one generation) before the next start."""


@dataclass(frozen=True)
class Server:
    """A process that the stack started, as stack.json remembers it."""

    pid: int
    created: float
    """Start time, seconds since the epoch."""
    marker: str
    """An argument of its command line that no other process has: it contains the data directory."""


def spawn(command: Sequence[str], *, marker: str, log: Path, cwd: Path, env: Mapping[str, str]) -> Server:
    """Starts a server whose output goes to the end of `log`.

    It gets a session of its own, so that Ctrl-C in the terminal reaches only whoever started it.

    Raises:
        StackError: the command cannot be run.
    """
    assert marker in command, "a server is recognised by its marker"
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                cwd=cwd, env=dict(env), start_new_session=True,
            )  # fmt: skip
        process = psutil.Process(child.pid)
        return Server(child.pid, process.create_time(), marker)
    except (OSError, psutil.Error) as error:
        raise StackError(f"cannot start {command[0]} ({error}): look into {log}") from error


def running(server: Server | None) -> psutil.Process | None:
    """The live process of a server; None if it ended, or if its pid belongs to somebody else now."""
    if server is None:
        return None
    with suppress(ChildProcessError):
        os.waitpid(server.pid, os.WNOHANG)  # if it was our child and has ended, do not leave a zombie
    try:
        process = psutil.Process(server.pid)
        same = abs(process.create_time() - server.created) <= SAME_START_S
        command = process.cmdline()  # empty for a moment while a program replaces itself by another
        return process if same and (server.marker in command or not command) else None
    except psutil.Error:
        return None


def find(marker: str) -> Server | None:
    """A running server with this marker that no record tells of: its starter died before it wrote one."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            # children that Postgres forked for a moment still show their parent's command line
            if marker in process.cmdline() and marker not in _parent_command(process):
                return Server(process.pid, process.create_time(), marker)
    return None


def _parent_command(process: psutil.Process) -> list[str]:
    parent = process.parent()
    return parent.cmdline() if parent else []


def stop(server: Server, *, gentle: signal.Signals = signal.SIGTERM, patience_s: float = 20.0) -> bool:
    """Ends a server and everything it started: asks first, kills after `patience_s`.

    Returns:
        Whether it was running. A process that only has the same pid is left alone.
    """
    process = running(server)
    if process is None:
        return False
    family = [process, *_descendants(process)]
    with suppress(psutil.NoSuchProcess):
        process.send_signal(gentle)
    psutil.wait_procs([process], timeout=patience_s)
    for member in family:  # whatever is left of it
        with suppress(psutil.NoSuchProcess):
            member.kill()
    _reap(server, family, 10.0)
    return True


def send(server: Server, number: signal.Signals) -> bool:
    """Sends a signal to the server; SIGKILL goes to its children too, and is waited for.

    Returns:
        Whether it was running.
    """
    process = running(server)
    if process is None:
        return False
    family = [process, *_descendants(process)] if number == signal.SIGKILL else [process]
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.send_signal(number)
    if number == signal.SIGKILL:
        _reap(server, family, 10.0)
    return True


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _reap(server: Server, family: Sequence[psutil.Process], patience_s: float) -> None:
    _, left = psutil.wait_procs(list(family), timeout=patience_s)
    if alive := [process for process in left if not _is_zombie(process)]:
        raise StackError(f"process {alive[0].pid} does not end, not even by SIGKILL: its disk may hang")
    running(server)


def _is_zombie(process: psutil.Process) -> bool:
    """Whether it has ended and only waits for its parent, or an idle init, to take notice."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until(ready: Callable[[], bool], *, server: Server, name: str, log: Path, deadline_s: float) -> None:
    """Waits until `ready()` answers true.

    Raises:
        StackError: the server ended before, or the deadline passed; with the tail of its log.
    """
    end = time.monotonic() + deadline_s
    while not ready():
        if running(server) is None:
            raise StackError(f"{name} ended while it started; look into {log}, which ends with:\n{tail(log)}")
        if time.monotonic() > end:
            raise StackError(f"{name} is not ready after {deadline_s:.0f} s; {log} ends with:\n{tail(log)}")
        time.sleep(0.05)


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, indented; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join("    " + line for line in text.splitlines()[-lines:])

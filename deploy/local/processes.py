"""Server processes: started in their own sessions, identified later by a marker, stopped reliably."""

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
"""Greatest difference between the recorded start time of a process and the one that psutil computes now.
psutil computes it from the time of the boot, which moves when the clock is corrected."""

LOG_LIMIT = 16 * 1024 * 1024
"""Size in bytes from which a log is rotated (one generation) before the next start."""


@dataclass(frozen=True)
class Server:
    """A process that `spawn` started; stack.json records those of the stack, demo.json those of a demo."""

    pid: int
    created: float
    """Start time, seconds since 1970-01-01 UTC."""
    marker: str
    """Argument of its command line that no other process has; it contains the data directory."""


def spawn(command: Sequence[str], *, marker: str, log: Path, cwd: Path, env: Mapping[str, str]) -> Server:
    """Start a server and append its output to `log`.

    The server gets its own session, so that Ctrl-C in the terminal does not reach it.

    Raises:
        StackError: the command cannot be run.
    """
    assert marker in command, "the marker must be an argument of the command"
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
    """Return the live process of a server; None if it ended, or if its pid belongs to another program now."""
    if server is None:
        return None
    with suppress(ChildProcessError):
        os.waitpid(server.pid, os.WNOHANG)  # if it is an ended child of this process, leave no zombie
    try:
        process = psutil.Process(server.pid)
        same = abs(process.create_time() - server.created) <= SAME_START_S
        command = process.cmdline()  # empty for a moment during exec
        return process if same and (server.marker in command or not command) else None
    except psutil.Error:
        return None


def find(marker: str) -> Server | None:
    """Find a running server by its marker, for example if its starter died before recording it."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            # freshly forked children of Postgres still have their parent's command line
            if marker in process.cmdline() and marker not in _parent_command(process):
                return Server(process.pid, process.create_time(), marker)
    return None


def _parent_command(process: psutil.Process) -> list[str]:
    parent = process.parent()
    return parent.cmdline() if parent else []


def stop(server: Server, *, gentle: signal.Signals = signal.SIGTERM, patience_s: float = 20.0) -> bool:
    """Stop a server and its descendants.

    The server gets `gentle`. When it has ended, or after `patience_s`, those that still run get SIGKILL.

    Returns:
        Whether it was running. Another process with the same pid is left alone.
    """
    process = running(server)
    if process is None:
        return False
    family = [process, *_descendants(process)]
    with suppress(psutil.NoSuchProcess):
        process.send_signal(gentle)
    psutil.wait_procs([process], timeout=patience_s)
    for member in family:  # those that still run
        with suppress(psutil.NoSuchProcess):
            member.kill()
    _reap(server, family, 10.0)
    return True


def send(server: Server, number: signal.Signals) -> bool:
    """Send a signal to the server; for SIGKILL include its descendants, and wait until all have ended.

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
    _, remaining = psutil.wait_procs(list(family), timeout=patience_s)
    if alive := [process for process in remaining if not _is_zombie(process)]:
        raise StackError(f"process {alive[0].pid} does not end after SIGKILL: check its disk, which may hang")
    running(server)


def _is_zombie(process: psutil.Process) -> bool:
    """Return whether a process has ended, even if its parent (such as a container's init) never reaps it."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until(ready: Callable[[], bool], *, server: Server, name: str, log: Path, deadline_s: float) -> None:
    """Wait until `ready()` returns true.

    Raises:
        StackError: the server ended, or the deadline passed; the message has the tail of its log.
    """
    end = time.monotonic() + deadline_s
    while not ready():
        if running(server) is None:
            raise StackError(f"{name} ended while it started; look into {log}, which ends with:\n{tail(log)}")
        if time.monotonic() > end:
            raise StackError(f"{name} is not ready after {deadline_s:.0f} s; {log} ends with:\n{tail(log)}")
        time.sleep(0.05)


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log, indented; empty if there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join("    " + line for line in text.splitlines()[-lines:])

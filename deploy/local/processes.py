"""Server processes: started in their own sessions, identified later by a marker, stopped reliably.

They may outlive the process that started them; a `Child` (deploy/local/child.py) ends with it.
"""

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from deploy.local import launch
from deploy.local.errors import ProcessError
from deploy.local.waiting import Patience

SAME_START_S = 10.0
"""Greatest difference between the recorded start time of a process and the one that psutil computes now.
psutil computes it from the time of the boot, which moves when the clock is corrected."""

POLL_S = 0.05
REAP_S = 0.5
"""Time for the parent of an ended process to reap it, seconds; then it counts as gone all the same."""
KILL_S = 10.0
"""Time within which processes end after SIGKILL, seconds."""


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
        ProcessError: the command cannot be run.
    """
    assert marker in command, "the marker must be an argument of the command"
    child = launch.start(command, log, env, cwd=cwd, own_session=True)
    try:
        return Server(child.pid, psutil.Process(child.pid).create_time(), marker)
    except psutil.Error as error:
        raise ProcessError(f"{command[0]} ended at once; {log} ends with:\n{launch.tail(log)}") from error


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
    family = [process, *descendants(process)]
    with suppress(psutil.NoSuchProcess):
        process.send_signal(gentle)
    psutil.wait_procs([process], timeout=patience_s)
    kill_all(family)
    running(server)  # leaves no zombie
    return True


def send(server: Server, number: signal.Signals) -> bool:
    """Send a signal to the server; for SIGKILL include its descendants, and wait until all have ended.

    Returns:
        Whether it was running.
    """
    if number == signal.SIGKILL:
        return stop(server, gentle=number, patience_s=0.0)
    process = running(server)
    if process is None:
        return False
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
    return True


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Return the processes that a process and its descendants started; empty if it has ended."""
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def memory(pids: Iterable[int]) -> int:
    """Measure the memory of processes and all their descendants, bytes; on Linux, shared pages count once."""
    family: dict[int, psutil.Process] = {}
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            family |= {member.pid: member for member in (process, *process.children(recursive=True))}
    return sum(_proportional(member) for member in family.values())


def _proportional(process: psutil.Process) -> int:
    """Measure the proportional set size of a process; outside Linux its resident set size; 0 if it ended."""
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def kill_all(family: Sequence[psutil.Process]) -> None:
    """Kill those of the processes that still run with SIGKILL, and wait until they have ended."""
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    wait_until_gone(family, KILL_S)


def wait_until_gone(family: Sequence[psutil.Process], patience_s: float) -> None:
    """Wait until processes have ended.

    Raises:
        ProcessError: one of them still runs.
    """
    patience = Patience(patience_s, 0.0)  # wait_procs pauses
    alive = family
    while alive := [process for process in psutil.wait_procs(alive, REAP_S)[1] if not _is_zombie(process)]:
        pid = alive[0].pid
        text = f"process {pid} still runs after {patience_s:.0f} s: kill it, and check its disk"
        patience.wait(partial(ProcessError, text))


def _is_zombie(process: psutil.Process) -> bool:
    """Return whether a process has ended, even if its parent (such as a container's init) never reaps it."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until(ready: Callable[[], bool], *, server: Server, name: str, log: Path, deadline_s: float) -> None:
    """Wait until a server is ready, as `wait_until_ready`."""
    wait_until_ready(ready, lambda: running(server) is not None, name=name, log=log, deadline_s=deadline_s)


def wait_until_ready(
    ready: Callable[[], bool], runs: Callable[[], bool], *, name: str, log: Path, deadline_s: float
) -> None:
    """Wait until `ready()` returns true.

    Raises:
        ProcessError: the process ended, or the deadline passed; the message has the tail of its log.
    """

    def error(problem: str) -> ProcessError:
        return ProcessError(f"{name} {problem}; {log} ends with:\n{launch.tail(log)}")

    patience = Patience(deadline_s, POLL_S)
    while not ready():
        if not runs():
            raise error("ended while it started")
        patience.wait(lambda: error(f"is not ready after {deadline_s:.0f} s"))

"""Is the embedded stack well? Status of each service, its log, and a check that notices what died."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from deploy.local import connect, processes, state
from deploy.local.errors import StackError
from deploy.local.state import ALL, Service


@dataclass(frozen=True)
class Status:
    """One service as it is now."""

    service: Service
    state: Literal["running", "stopped", "died"]
    pid: int | None
    port: int | None
    """Where clients reach it, or where they did last time."""
    memory_bytes: int
    """Resident memory of the service with its children; 0 unless it runs."""


def status(data_dir: Path) -> list[Status]:
    """Status of every service; `died` is one that was started, was not stopped and does not run."""
    current = state.load(data_dir.resolve())
    answer = []
    for service in ALL:
        server = current.servers.get(service)
        process = processes.running(server)
        condition: Literal["running", "stopped", "died"] = "stopped" if server is None else "died"
        if process:
            condition = "running"
        pid = process.pid if process else None
        answer.append(Status(service, condition, pid, current.ports.get(service), _memory(process)))
    return answer


def check(data_dir: Path) -> None:
    """Notices a service that died since it was started, and a connector that gave up; takes milliseconds.

    Raises:
        StackError: with the service, and the tail of its log.
    """
    data_dir = data_dir.resolve()
    current = state.load(data_dir)
    for service, server in current.servers.items():
        if processes.running(server) is None:
            log = log_file(data_dir, service)
            raise StackError(
                f"{service} ended unexpectedly; `fraud stack up` starts it again; {log} ends with:\n"
                f"{processes.tail(log)}"
            )
    if "connect" in current.servers:
        reason = connect.failure(current.ports)
        if reason:
            raise StackError(f"Debezium's connector failed ({reason}); `fraud stack up` starts it again")


def logs(data_dir: Path, service: Service, lines: int = 100) -> str:
    """The last lines of a service's log; empty if it was never started."""
    return processes.tail(log_file(data_dir.resolve(), service), lines)


def log_file(data_dir: Path, service: Service) -> Path:
    """Where a service's output goes."""
    return data_dir / "logs" / f"{service}.log"


def _memory(process: psutil.Process | None) -> int:
    if process is None:
        return 0
    total = 0
    try:
        for member in [process, *process.children(recursive=True)]:
            # pss counts memory shared between Postgres processes once
            total += member.memory_full_info().pss if psutil.LINUX else member.memory_info().rss
    except psutil.Error:
        return total
    return total

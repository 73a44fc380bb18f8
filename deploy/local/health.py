"""Health of the embedded stack: status and log of each service, and a check for services that died."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deploy.local import connect, launch, processes, state
from deploy.local.errors import StackError
from deploy.local.state import ALL, Service


@dataclass(frozen=True)
class Status:
    """Current status of one service."""

    service: Service
    state: Literal["running", "stopped", "died"]
    pid: int | None
    port: int | None
    """Port for clients; if the service does not run, that of its last start."""
    memory_bytes: int
    """Memory of the service with its children; 0 unless it runs."""


def status(data_dir: Path) -> list[Status]:
    """Return the status of every service; `died`: it was started, was not stopped and does not run."""
    current = state.load(data_dir.resolve())
    statuses = []
    brokers = state.brokers_of(current.ports)[1:]
    for service in (*ALL, *brokers):
        server = current.servers.get(service)
        process = processes.running(server)
        condition: Literal["running", "stopped", "died"] = "stopped" if server is None else "died"
        if process:
            condition = "running"
        pid = process.pid if process else None
        memory = processes.memory([process.pid] if process else ())
        statuses.append(Status(service, condition, pid, current.ports.get(service), memory))
    return statuses


def check(data_dir: Path) -> None:
    """Check that every started service runs and that the connector has not failed; takes milliseconds.

    Raises:
        StackError: a service died (the message has the tail of its log), or the connector failed.
    """
    data_dir = data_dir.resolve()
    current = state.load(data_dir)
    for service, server in current.servers.items():
        if processes.running(server) is None:
            log = log_file(data_dir, service)
            raise StackError(
                f"{service} ended unexpectedly; `fraud stack up` starts it again; {log} ends with:\n"
                f"{launch.tail(log)}"
            )
    if "connect" in current.servers:
        reason = connect.failure(current.ports)
        if reason:
            raise StackError(f"Debezium's connector failed ({reason}); `fraud stack up` starts it again")


def log_file(data_dir: Path, service: Service) -> Path:
    """Return the path of a service's log."""
    return data_dir / "logs" / f"{service}.log"

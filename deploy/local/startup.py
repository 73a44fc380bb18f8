"""Start and stop order of the stack's services."""

import signal
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Lock

from deploy.local import connect, kafka, postgres, processes, state, topics
from deploy.local.console import Progress, silent
from deploy.local.errors import StackError
from deploy.local.processes import Server
from deploy.local.state import BROKERS, Service, State
from streaming_job.contracts.topics import Topics

STOP_ORDER: tuple[Service, ...] = ("connect", "postgres", *reversed(BROKERS))
"""Order of stops: Connect before the servers that it uses."""

GENTLE: dict[Service, signal.Signals] = {
    "connect": signal.SIGTERM,
    "postgres": signal.SIGINT,  # fast shutdown; SIGTERM would wait until every client has disconnected
    **dict.fromkeys(BROKERS, signal.SIGTERM),
}
PATIENCE_S = 20.0
WITHOUT_QUORUM_S = 2.0
"""Time for the last of several brokers to stop: it would wait for a controller, which no quorum elects."""


@dataclass(frozen=True)
class BringUp:
    """Work of one call of `stack.up`."""

    data_dir: Path
    state: State
    """Recorded state; saved whenever a server is started or stopped."""
    wanted: Collection[Service]
    """Services that must be ready at the end."""
    started: Collection[Service]
    """Wanted services that do not run yet."""
    replay: bool
    partitions: int
    progress: Progress


def bring_up(work: BringUp) -> None:
    """Start Postgres and Kafka in parallel, then Connect; wait until all wanted services are ready.

    Raises:
        StackError: a service failed; services that this call started may still run.
    """
    writing, cancelled = Lock(), Event()
    data_dir, ports = work.data_dir, work.state.ports

    def launch(service: Service, start: Callable[[], Server]) -> Server:
        if service in work.started:
            work.progress(f"starting {service}")
            server = start()
            with writing:
                work.state.servers[service] = server
                state.save(data_dir, work.state)
        if cancelled.is_set():
            with writing:
                stop(data_dir, work.state, [service])
            raise StackError(f"{service} was stopped: the start of the stack was cancelled")
        return work.state.servers[service]

    def bring_postgres() -> None:
        server = launch("postgres", lambda: postgres.start(data_dir, ports))
        postgres.wait(data_dir, server, ports)
        work.progress(f"postgres is ready on port {ports['postgres']}")

    def bring_kafka() -> None:
        brokers = state.brokers_of(ports)
        servers = {
            name: launch(name, partial(kafka.start, data_dir, ports, work.progress, name)) for name in brokers
        }
        for name, server in servers.items():
            kafka.wait(data_dir, server, ports, name)
        addresses = kafka.bootstrap_servers(ports)
        topics.create(addresses, Topics(), replay=work.replay, partitions=work.partitions)
        work.progress(f"kafka is ready on port {ports['kafka']}")

    starters: dict[Service, Callable[[], None]] = {"postgres": bring_postgres, "kafka": bring_kafka}
    with ThreadPoolExecutor(len(starters)) as pool:
        futures: list[Future[None]] = []
        try:
            for service in work.wanted:
                if service in starters:
                    futures.append(pool.submit(starters[service]))
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            # a service failed, or Ctrl-C: stopping the servers ends the threads that wait for them
            cancelled.set()
            while wait(futures, timeout=0.1).not_done:
                with writing:
                    stop(data_dir, work.state, work.started)
            raise  # the caller stops the remaining servers
    if "connect" in work.wanted:
        server = launch("connect", lambda: connect.start(data_dir, ports, work.progress))
        connect.wait(data_dir, server, ports)
        work.progress(f"connect is ready on port {ports['connect']}")


def stop(
    data_dir: Path, current: State, services: Collection[Service], progress: Progress = silent
) -> list[Service]:
    """Stop those of the services that are recorded, in STOP_ORDER, and remove them from the record.

    Returns:
        The services that were running.
    """
    stopped: list[Service] = []
    for service in STOP_ORDER:
        if service in services and service in current.servers:
            progress(f"stopping {service}")
            is_last_of_several = service == BROKERS[0] and len(state.brokers_of(current.ports)) > 1
            patience_s = WITHOUT_QUORUM_S if is_last_of_several else PATIENCE_S
            if processes.stop(current.servers[service], gentle=GENTLE[service], patience_s=patience_s):
                stopped.append(service)
            del current.servers[service]
            state.save(data_dir, current)
    return stopped

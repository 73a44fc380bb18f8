"""The order in which the parts of the stack come up and go down."""

import signal
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock

from deploy.local import connect, kafka, postgres, processes, state, topics
from deploy.local.console import Progress, silent
from deploy.local.errors import StackError
from deploy.local.processes import Server
from deploy.local.state import Service, State
from streaming_job.contracts.topics import Topics

STOP_ORDER: tuple[Service, ...] = ("connect", "postgres", "kafka")
"""Writers before those they write to."""

GENTLE: dict[Service, signal.Signals] = {
    "connect": signal.SIGTERM,
    "postgres": signal.SIGINT,  # "fast": SIGTERM would wait until every client has left
    "kafka": signal.SIGTERM,
}


@dataclass(frozen=True)
class Plan:
    """What one call of `up` has to do."""

    data_dir: Path
    state: State
    """Recorded and saved as servers come and go."""
    wanted: Collection[Service]
    """What has to be ready in the end."""
    started: Collection[Service]
    """Those of them that do not run yet."""
    topics: Topics
    replay: bool
    partitions: int
    progress: Progress


def bring_up(plan: Plan) -> None:
    """Starts Postgres and Kafka side by side, then Connect; waits until all that is wanted is ready.

    Raises:
        StackError: one of them failed; what this call started may still run.
    """
    writing, cancelled = Lock(), Event()
    data_dir, ports = plan.data_dir, plan.state.ports

    def launch(service: Service, start: Callable[[], Server]) -> Server:
        if service in plan.started:
            plan.progress(f"starting {service}")
            server = start()
            with writing:
                plan.state.servers[service] = server
                state.save(data_dir, plan.state)
        if cancelled.is_set():
            with writing:
                stop(data_dir, plan.state, [service])
            raise StackError(f"{service} was not waited for: the start of the stack was given up")
        return plan.state.servers[service]

    def bring_postgres() -> None:
        server = launch("postgres", lambda: postgres.start(data_dir, ports))
        postgres.wait(data_dir, server, ports)
        plan.progress(f"postgres is ready on port {ports['postgres']}")

    def bring_kafka() -> None:
        server = launch("kafka", lambda: kafka.start(data_dir, ports, plan.progress))
        kafka.wait(data_dir, server, ports)
        servers = kafka.bootstrap_servers(ports)
        topics.create(servers, plan.topics, replay=plan.replay, partitions=plan.partitions)
        plan.progress(f"kafka is ready on port {ports['kafka']}")

    both: dict[Service, Callable[[], None]] = {"postgres": bring_postgres, "kafka": bring_kafka}
    with ThreadPoolExecutor(len(both)) as pool:
        first: list[Future[None]] = []
        try:
            for service in plan.wanted:
                if service in both:
                    first.append(pool.submit(both[service]))
            for future in wait(first, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            # one failed, or Ctrl-C: whoever waits for a server sees that end, and ends too
            cancelled.set()
            while wait(first, timeout=0.1).not_done:
                with writing:
                    stop(data_dir, plan.state, plan.started)
            raise  # the caller stops what is left
    if "connect" in plan.wanted:
        server = launch("connect", lambda: connect.start(data_dir, ports, plan.progress))
        connect.wait(data_dir, server, ports)
        plan.progress(f"connect is ready on port {ports['connect']}")


def stop(
    data_dir: Path, current: State, services: Collection[Service], progress: Progress = silent
) -> list[Service]:
    """Stops those of the services that are recorded, in order, and strikes them off the record.

    Returns:
        The services that were running.
    """
    stopped: list[Service] = []
    for service in STOP_ORDER:
        if service in services and service in current.servers:
            progress(f"stopping {service}")
            if processes.stop(current.servers[service], gentle=GENTLE[service]):
                stopped.append(service)
            del current.servers[service]
            state.save(data_dir, current)
    return stopped

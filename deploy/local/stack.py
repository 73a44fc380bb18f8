"""The embedded stack as a whole: up, down, status, logs. Each data directory has one stack."""

import shutil
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from deploy.local import connect, jars, kafka, postgres, processes, startup, state
from deploy.local.console import Progress, silent
from deploy.local.errors import StackError
from deploy.local.ports import HOST, Ports, choose, is_free
from deploy.local.startup import BringUp
from deploy.local.state import ALL, BROKERS, Service
from feature_store.errors import FraudError

PORT_NAMES: dict[Service, tuple[str, ...]] = {
    "postgres": ("postgres",),
    **{name: (name, kafka.controller(name)) for name in BROKERS},
    "connect": ("connect",),
}
PROXY_NAMES = frozenset({"proxied", "proxy"})
GUARDED_NAMES = frozenset({"guarded"})
MARKERS: dict[Service, Callable[[Path], str]] = {
    "connect": connect.marker,
    "postgres": postgres.marker,
    **{name: partial(kafka.marker, name=name) for name in BROKERS},
}
MINIMUM_FREE_BYTES = 1024**3
STARTS = 3
"""Starts of `up` on other ports, while another program takes one that was free."""


@dataclass(frozen=True)
class Endpoints:
    """Addresses of the stack's services."""

    bootstrap_servers: str
    """Kafka, host:port; empty if Kafka does not run."""
    postgres_dsn: str
    """libpq URI of the database with card_profiles; empty if Postgres does not run."""
    connect_url: str
    """Kafka Connect's REST interface; empty if Connect does not run."""
    mlflow_tracking_uri: str
    """SQLite database under the data directory; there is no server."""
    proxied: tuple[int, int] | None = None
    """For a proxy in front of Kafka: its listening port, and the broker's port behind it; else None."""
    guarded: tuple[str, dict[str, str]] | None = None
    """Kafka's listener with authentication, host:port, and the client settings for it; None without one."""


def up(
    data_dir: Path,
    *,
    ports: Ports = Ports(),  # noqa: B008  # frozen
    services: Collection[Service] = ALL,
    replay: bool = False,
    partitions: int = 2,
    brokers: int | None = None,
    proxied: bool = False,
    guarded: bool = False,
    progress: Progress = silent,
) -> Endpoints:
    """Start the services that do not run yet, and wait until all are ready.

    Running services are kept. Services that died, even by SIGKILL, are started again on their data and, if
    possible, their ports. Creates the topics, the table card_profiles and the connector. If anything fails,
    the services that this call started are stopped again.

    Args:
        ports: ports to listen on; 0 for those of the last start, or free ones.
        services: the services to start; connect needs the other two.
        replay: input topics take their timestamps from the producer, see `Topics.configs`.
        partitions: partitions of new topics that have several.
        brokers: number of brokers, 1 or 3; None: as at the first start, at which it is 1.
        proxied: give Kafka a second listener, for clients that connect through a proxy (`Endpoints.proxied`).
        guarded: give Kafka a listener with user and password (`Endpoints.guarded`).

    Raises:
        StackError: Java, a free port, disk space or a jar is missing, or a service does not become ready.
    """
    data_dir = data_dir.resolve()
    with state.exclusive(data_dir, progress):
        (data_dir / "logs").mkdir(exist_ok=True)
        (data_dir / "mlflow" / "artifacts").mkdir(parents=True, exist_ok=True)
        current = state.load(data_dir)
        of_kafka = _brokers(data_dir, current, brokers)
        if len(of_kafka) > 1 and (proxied or guarded):
            raise StackError("listeners for a proxy and for logins need a stack with one broker")
        wanted = [
            each
            for service in ALL
            if service in services
            for each in (of_kafka if service == "kafka" else (service,))
        ]
        started = [service for service in wanted if processes.running(current.servers.get(service)) is None]
        if started:
            _require_disk(data_dir)
        for group in jars.EVERYDAY:
            if group in started:
                jars.ensure(group, progress=progress)  # all jars, before the first server starts
        for service in startup.STOP_ORDER:
            if service in started:
                _stop_orphan(data_dir, service)
        names = frozenset(name for service in started for name in PORT_NAMES[service])
        if proxied and "kafka" in started:
            names |= PROXY_NAMES - current.ports.keys()  # a running proxy keeps its port
        if guarded and "kafka" in started:
            names |= GUARDED_NAMES
        for attempts_left in reversed(range(STARTS)):
            current.ports |= choose(_pinned(ports, current, of_kafka), current.ports, names)
            try:
                startup.bring_up(BringUp(data_dir, current, wanted, started, replay, partitions, progress))
                break
            except BaseException as error:
                startup.stop(data_dir, current, started)
                # another program may have taken a port between its choice and the server's start
                taken = [name for name in sorted(names) if not is_free(current.ports[name])]
                if not (isinstance(error, FraudError) and taken and attempts_left):
                    raise
                progress(f"another program took port {current.ports[taken[0]]}: starting on another")
    return endpoints(data_dir)


def down(data_dir: Path, *, progress: Progress = silent) -> list[Service]:
    """Stop the services that `up` started, and nothing else; data is kept.

    Returns:
        The services that were running.
    """
    data_dir = data_dir.resolve()
    if not data_dir.exists():
        return []
    with state.exclusive(data_dir, progress):
        return startup.stop(data_dir, state.load(data_dir), startup.STOP_ORDER, progress)


def stop(data_dir: Path, service: Service) -> None:
    """Stop one service gracefully."""
    with state.exclusive(data_dir.resolve()):
        startup.stop(data_dir.resolve(), state.load(data_dir.resolve()), [service])


def kill(data_dir: Path, service: Service, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal to one service, for tests; a service that the signal ends counts as died, not stopped.

    Returns:
        Whether it was running.
    """
    server = state.load(data_dir.resolve()).servers.get(service)
    return server is not None and processes.send(server, number)


def endpoints(data_dir: Path) -> Endpoints:
    """Return the addresses of the running stack of this directory.

    Raises:
        StackError: no service runs.
    """
    data_dir = data_dir.resolve()
    current = state.load(data_dir)
    alive = {name for name, server in current.servers.items() if processes.running(server)}
    if not alive:
        raise StackError(f"no stack runs on {data_dir}: start it with `fraud stack up --data-dir {data_dir}`")
    return Endpoints(
        bootstrap_servers=kafka.bootstrap_servers(current.ports) if "kafka" in alive else "",
        postgres_dsn=postgres.dsn(data_dir, current.ports) if "postgres" in alive else "",
        connect_url=f"http://{HOST}:{current.ports['connect']}" if "connect" in alive else "",
        mlflow_tracking_uri=f"sqlite:///{data_dir / 'mlflow' / 'mlflow.db'}",
        proxied=(current.ports["proxy"], current.ports["proxied"]) if "proxy" in current.ports else None,
        guarded=kafka.guarded(current.ports),
    )


def _brokers(data_dir: Path, current: state.State, wanted: int | None) -> tuple[Service, ...]:
    """Return the brokers of a stack, the recorded ones or, before its first start, as many as wanted."""
    recorded = state.brokers_of(current.ports)
    if wanted not in (None, 1, len(BROKERS)):
        raise StackError(f"a stack has 1 or {len(BROKERS)} brokers, not {wanted}")
    if recorded and wanted not in (None, len(recorded)):
        raise StackError(
            f"the stack on {data_dir} was made with another number of brokers ({len(recorded)}); choose "
            "another --data-dir"
        )
    return recorded or BROKERS[: wanted or 1]


def _pinned(ports: Ports, current: state.State, brokers: tuple[Service, ...]) -> Ports:
    """Return the ports to ask for: while some of several brokers run, the others must come back on theirs."""
    if not any(processes.running(current.servers.get(name)) for name in brokers):
        return ports
    recorded = {name: current.ports[name] for broker in brokers for name in PORT_NAMES[broker]}
    return replace(ports, **recorded)


def _stop_orphan(data_dir: Path, service: Service) -> None:
    """Stop a server that stack.json lacks: its starter was killed before it had recorded the server."""
    orphan = processes.find(MARKERS[service](data_dir))
    if orphan:
        processes.stop(orphan, gentle=startup.GENTLE[service])


def _require_disk(data_dir: Path) -> None:
    free = shutil.disk_usage(data_dir).free
    if free < MINIMUM_FREE_BYTES:
        raise StackError(
            f"{free >> 20} MiB are free for {data_dir}, {MINIMUM_FREE_BYTES >> 20} MiB are needed: "
            "make room or choose another --data-dir"
        )

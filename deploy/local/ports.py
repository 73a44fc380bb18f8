"""Ports of the embedded stack: requested ones, those of the last start, or free ones."""

import random
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from deploy.local.errors import StackError

HOST = "127.0.0.1"
"""The only address that the stack listens on."""

RANGE = range(20_000, 32_000)
"""Range to search for free ports: below the ephemeral ports of outgoing connections."""


@dataclass(frozen=True)
class Ports:
    """Listening ports; 0 means the port of the last start if it is free, else any free one."""

    kafka: int = 0
    """Kafka's listener for clients."""
    controller: int = 0
    """Kafka's KRaft controller."""
    kafka2: int = 0
    controller2: int = 0
    kafka3: int = 0
    controller3: int = 0
    """Those of the second and third broker."""
    proxied: int = 0
    """Kafka's listener behind a proxy, for tests with a bad network."""
    proxy: int = 0
    """The proxy's own port, advertised to clients of that listener."""
    guarded: int = 0
    """Kafka's listener with user and password, for tests."""
    postgres: int = 0
    connect: int = 0
    """Kafka Connect's REST interface."""


def choose(wanted: Ports, previous: Mapping[str, int], names: frozenset[str]) -> dict[str, int]:
    """Choose a free port for each name.

    Args:
        previous: ports of the last start, used again if they are free and no other port is requested.
        names: the fields of `Ports` to choose for.

    Raises:
        StackError: a requested port is in use or not allowed, or no free port was found.
    """
    chosen: dict[str, int] = {}
    for name, port in asdict(wanted).items():
        if name not in names:
            continue
        if port:
            if not is_free(port):
                raise StackError(
                    f"port {port} for {name} is in use or not allowed: free it or choose another port"
                )
            chosen[name] = port
        elif previous.get(name) and is_free(previous[name]) and previous[name] not in chosen.values():
            chosen[name] = previous[name]
        else:
            chosen[name] = _find_free(set(chosen.values()) | set(asdict(wanted).values()))
    return chosen


def is_free(port: int) -> bool:
    """Return whether a server could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # servers set SO_REUSEADDR, too: with it, a port in TIME_WAIT counts as free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server((HOST, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _find_free(used: set[int]) -> int:
    # random, so that two stacks that start at the same moment hardly ever choose the same port
    for port in random.sample(RANGE, 200):
        if port not in used and is_free(port):
            return port
    raise StackError(f"no free port found between {RANGE.start} and {RANGE.stop}: close programs that listen")

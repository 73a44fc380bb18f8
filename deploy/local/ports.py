"""Ports of the embedded stack: given ones, those of the last start, or free ones."""

import random
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from deploy.local.errors import StackError

HOST = "127.0.0.1"
"""The only address that the stack listens on."""

RANGE = range(20_000, 32_000)
"""Where free ports are looked for: below the ports that systems hand to outgoing connections."""


@dataclass(frozen=True)
class Ports:
    """Listening ports; 0 means: the one of the last start if it is free, otherwise any free one."""

    kafka: int = 0
    """Kafka's clients."""
    controller: int = 0
    """Kafka's own KRaft traffic."""
    proxied: int = 0
    """Kafka's listener behind a proxy, where tests with a bad network want one."""
    proxy: int = 0
    """Where clients of that listener are told to come: the proxy's own port."""
    guarded: int = 0
    """Kafka's listener that asks for a user and a password, where tests want one."""
    postgres: int = 0
    connect: int = 0
    """Kafka Connect's REST interface."""


def choose(wanted: Ports, previous: Mapping[str, int], names: frozenset[str]) -> dict[str, int]:
    """Picks a free port for each name.

    Args:
        wanted: ports asked for.
        previous: ports of the last start, kept where they are still free and no other is asked for.
        names: the fields of `Ports` to choose for.

    Raises:
        StackError: a port that was asked for is in use or not allowed, or no free one was found.
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
    """Whether a server could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT does not count
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True


def _find_free(taken: set[int]) -> int:
    # at random, so that two stacks that start at the same moment hardly ever pick the same
    for port in random.sample(RANGE, 200):
        if port not in taken and is_free(port):
            return port
    raise StackError(f"no free port found between {RANGE.start} and {RANGE.stop}: close programs that listen")

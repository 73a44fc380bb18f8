"""Resident processes: the tasks of a Spark partition (a key group) always run in the same process.

Spark gives a task to any idle Python worker. But a process that has run a key group's tasks holds the group
open: its consumers, its producer, and tables that take long to load. So a worker of the job's daemon runs no
task itself. It looks at the task's partition, which is the first number that Spark sends, and passes Spark's
connection on to the resident of that partition, a process that the daemon forks for the partition's first
task. Data then flows between Spark and the resident directly.

A resident ends when the worker whose task it runs ends (so Spark can still kill the task by killing the
worker); when the daemon ends; after a task that raised; and after IDLE_S in which it neither gets a task nor
serves a key group, for example because Spark has moved the partition to another machine.
"""

import os
import secrets
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from pyspark import daemon
from setproctitle import getproctitle, setproctitle

from streaming_job.runtime.workers import endings

spark_worker = daemon.worker
activities: list[Callable[[], bool]] = []
"""Functions that return whether this process does something between its tasks, added by who does it."""
_secret = ""
"""Random part of the residents' addresses. A process id would not do: containers that share a network also
share the addresses, but each numbers its own processes, so two daemons may have the same process id."""

NUMBER = struct.Struct("!i")
RESIDENT = struct.Struct("!ii")
"""First message on a connection that asks the daemon for a resident: BECOME, and the partition."""
BECOME = -7
"""Sent in place of a partition; not -1, which Spark's own tests send."""
CREDENTIALS = struct.Struct("3i")
"""Process, user and group of a peer (SO_PEERCRED)."""
REUSABLE, SPENT = b"+", b"-"
"""Answers of a resident after a task: whether Spark may use the connection again."""
PATIENCE_S = 10.0
"""Time within which a new resident has to listen."""
LOOK_S = 0.002
IDLE_S = 60.0


def install() -> None:
    """Have the workers of this process, which is to be Spark's daemon, pass their tasks on to residents."""
    global _secret
    _secret = secrets.token_hex(8)
    daemon.worker = worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Have a connection's next task run by the resident of its partition; replaces `pyspark.daemon.worker`.

    Args:
        sock: connection to the JVM, or to a worker that asks for a resident.
        authenticated: whether the JVM has proved that it may use this process.

    Returns:
        0 if the connection can be used for another task, else 1.
    """
    if sock.family != socket.AF_UNIX or not authenticated:
        return spark_worker(sock, authenticated)
    first = sock.recv(NUMBER.size, socket.MSG_PEEK | socket.MSG_WAITALL)
    if len(first) < NUMBER.size:
        return 1  # Spark has closed it
    (partition,) = NUMBER.unpack(first)
    if partition == BECOME:
        _, partition = RESIDENT.unpack(sock.recv(RESIDENT.size, socket.MSG_WAITALL))
        sock.close()
        _reside(partition)
    resident = _connect(partition) or _create(sock.getsockname(), partition)
    with resident:
        socket.send_fds(resident, [b"\0"], [sock.fileno()])
        answer = resident.recv(1)
    if not answer:  # the resident was killed: Spark learns it from the end of the connection
        os._exit(1)
    return 0 if answer == REUSABLE else 1


def _name(partition: int) -> str:
    """Return the address of a resident: an abstract socket, which vanishes with its process."""
    return f"\0card-fraud-resident-{_secret}-{partition}"


def _connect(partition: int) -> socket.socket | None:
    """Connect to a resident; None if there is none."""
    resident = socket.socket(socket.AF_UNIX)
    try:
        resident.connect(_name(partition))
    except ConnectionRefusedError:
        resident.close()
        return None
    if not _is_ours(resident):
        resident.close()
        raise PermissionError(f"another user's process pretends to serve partition {partition}")
    return resident


def _is_ours(peer: socket.socket) -> bool:
    """Return whether a process of this user is at the other end: abstract names are open to all users."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return bool(CREDENTIALS.unpack(credentials)[1] == os.getuid())


def _create(daemon_path: str, partition: int) -> socket.socket:
    """Have the daemon fork a resident, and connect to it."""
    with socket.socket(socket.AF_UNIX) as request:
        request.connect(daemon_path)
        request.sendall(RESIDENT.pack(BECOME, partition))
        request.recv(NUMBER.size)  # the resident's process id
    deadline = time.monotonic() + PATIENCE_S
    while (resident := _connect(partition)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no process for partition {partition} in {PATIENCE_S:.0f} s")
        time.sleep(LOOK_S)
    return resident


def _reside(partition: int) -> NoReturn:
    """Run the tasks of a partition, one after another; ends the process."""
    setproctitle(f"{getproctitle()} partition {partition}")
    with suppress(OSError), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(_name(partition))  # fails if another request has created the resident meanwhile
        listener.listen()
        listener.settimeout(IDLE_S)
        is_reusable = True
        while is_reusable:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                if not any(is_active() for is_active in activities):
                    break
                continue
            with client:
                client.setblocking(True)
                is_reusable = not _is_ours(client) or _serve(client)
    os._exit(0)


def _serve(client: socket.socket) -> bool:
    """Run the task that a worker passes on; return whether the process can run another one."""
    _, descriptors, _, _ = socket.recv_fds(client, 1, 1)
    if not descriptors:  # the worker was killed before it sent the connection
        return True
    endings.end_with(client.fileno())
    with socket.socket(fileno=descriptors[0]) as connection:
        code = spark_worker(connection, authenticated=True)
    endings.outlive(client.fileno())
    with suppress(OSError):  # the worker was killed after the task
        client.send(SPENT if code else REUSABLE)
    return code == 0

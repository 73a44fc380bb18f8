"""When an epoch ends: the driver decides, the tasks are told over a socket.

Each task of an epoch keeps a connection to the driver. One byte from there ends the task's loop, and so does
the end of the connection: a task whose driver is gone must not go on. A byte from the task asks the driver to
end the epoch early. Who connects has to know a secret that travels with the task.
"""

import hmac
import logging
import secrets
import select
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

from feature_store.errors import FraudError

log = logging.getLogger(__name__)

_HELLO = struct.Struct("<32sqi")
"""Secret, epoch, key group."""
_END = b"."
LOOK_S = 0.1
"""How often the driver looks whether the epoch has to end for another reason than its time."""
CONNECT_TIMEOUT_S = 20.0
APART_S = 0.05
"""How long one group is waited for before the next one is ended: Spark gives idle Python workers to tasks
first in, first out, so groups that end in their order meet the same process, which has their partitions and
their producer, in the next epoch."""
ALL_APART_S = 0.1
"""How long all of them are waited for, however many they are."""


class EpochError(FraudError):
    """A task cannot reach the driver."""


@dataclass(frozen=True)
class Address:
    """Where the tasks find the driver; picklable."""

    host: str
    port: int
    secret: bytes = field(repr=False)


class EpochServer:
    """The driver's side."""

    def __init__(self, host: str, port: int, must_end: Callable[[], bool]) -> None:
        """Listen.

        Args:
            host: an address of this machine that the executors can reach.
            port: to listen on; 0: any that is free.
            must_end: asked now and then during an epoch; true ends it.
        """
        self._must_end = must_end
        self._listener = socket.create_server((host, port), backlog=256)
        self.address = Address(host, self._listener.getsockname()[1], secrets.token_hex(16).encode())
        self._lock = threading.Lock()
        self._epoch, self._deadline, self._ended = -1, 0.0, True
        self._tasks: dict[socket.socket, int] = {}
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="epochs", daemon=True)
        self._thread.start()

    def begin(self, epoch: int, seconds: float) -> None:
        """Let an epoch run for some time; tasks of any other are told to end."""
        with self._lock:
            self._epoch, self._deadline, self._ended = epoch, time.monotonic() + seconds, False

    def close(self) -> None:
        """End the running epoch and stop listening."""
        self._closed = True
        self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            with self._lock:
                left = LOOK_S if self._ended else min(LOOK_S, max(0.0, self._deadline - time.monotonic()))
            for key, _ in self._selector.select(left):
                if key.fileobj is self._listener:
                    self._welcome()
                elif key.fileobj in self._tasks:
                    self._hear(key.fileobj)
                else:
                    self._greet(key.fileobj)  # type: ignore[arg-type]
            with self._lock:
                if not self._ended and (time.monotonic() >= self._deadline or self._must_end()):
                    self._end()
        with self._lock:
            self._end()
        self._selector.close()
        self._listener.close()

    def _welcome(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)  # nobody who says nothing, or takes nothing, holds up the others
        self._selector.register(connection, selectors.EVENT_READ)

    def _greet(self, connection: socket.socket) -> None:
        """Take in who has connected: all of it came in one packet, or it is no task."""
        try:
            hello = connection.recv(_HELLO.size)
        except OSError:
            hello = b""
        if len(hello) != _HELLO.size:
            self._drop(connection)
            return
        secret, epoch, group = _HELLO.unpack(hello)
        if not hmac.compare_digest(secret, self.address.secret):
            self._drop(connection)
            return
        self._tasks[connection] = group
        with self._lock:
            if epoch != self._epoch or self._ended:
                _send_end(connection)

    def _hear(self, connection: socket.socket) -> None:
        try:
            asked = connection.recv(1)
        except OSError:
            asked = b""
        if asked:
            with self._lock:
                self._deadline = 0.0
            return
        del self._tasks[connection]
        self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()

    def _end(self) -> None:
        """Tell every task, in the order of the groups."""
        self._ended = True
        apart_s = min(APART_S, ALL_APART_S / max(1, len(self._tasks)))
        for connection, _ in sorted(self._tasks.items(), key=lambda task: task[1]):
            _send_end(connection)
            select.select([connection], [], [], apart_s)  # it hangs up when it has ended


def _send_end(connection: socket.socket) -> None:
    with suppress(OSError):  # one that is gone ends by itself
        connection.send(_END)


class Epoch:
    """A task's side; use as a context manager."""

    def __init__(self, address: Address, number: int, group: int) -> None:
        """Connect.

        Raises:
            EpochError: the driver does not answer.
        """
        try:
            self._socket = socket.create_connection((address.host, address.port), CONNECT_TIMEOUT_S)
            self._socket.sendall(_HELLO.pack(address.secret, number, group))
        except OSError as fault:
            raise EpochError(
                f"the job's driver does not answer at {address.host}:{address.port} ({fault}); executors "
                "must reach it: set spark.driver.host in FRAUD_SPARK, and open the port to them"
            ) from fault
        self._socket.setblocking(False)
        self.number = number
        self._over = self._asked = False

    def is_over(self) -> bool:
        """Whether the driver has ended the epoch, or is gone."""
        if not self._over:
            try:
                self._socket.recv(1)
                self._over = True
            except BlockingIOError:
                pass
            except OSError:
                self._over = True
        return self._over

    def ask_for_end(self) -> None:
        """Have the driver end the epoch for all groups."""
        if not self._asked:
            self._asked = True
            try:
                self._socket.send(_END)
            except OSError:
                self._over = True

    def __enter__(self) -> "Epoch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

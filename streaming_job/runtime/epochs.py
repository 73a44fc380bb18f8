"""The end of epochs: the driver decides when an epoch ends, and tells its tasks over a socket.

Each task of an epoch keeps a connection to the driver, and they send each other single bytes:

    END   from the driver: the epoch is over. A closed connection says the same: a task whose driver is gone
          must not continue.
    END   from the task: the driver is asked to end the epoch early.
    DONE  from the task: its state is written, and it waits for its turn to finish.
    TURN  from the driver: the tasks of all lower groups have finished.

Spark gives idle Python workers to tasks first in, first out. So groups that finish in their order mostly get
the same worker in the next epoch, which still has their partitions and their producer open. A client has to
send a secret, which Spark gives to the tasks.
"""

import hmac
import logging
import secrets
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
_END, _DONE, _TURN = b".", b"d", b"t"
LOOK_S = 0.1
"""Interval at which the driver checks whether the epoch has to end early."""
CONNECT_TIMEOUT_S = 20.0
GREETING_S = 10.0
"""Time in which a client has to send its secret; a task does so at once."""
MAX_STRANGERS = 64
"""Maximum number of connections without a secret, beside one for each task; then the oldest is dropped."""
APART_S = 0.005
"""Time from the end of a task's connection until its worker is idle: then the next group's turn comes."""
ALL_APART_S = 0.05
"""The same for all groups together, at most."""


class EpochError(FraudError):
    """A task cannot reach the driver."""


@dataclass(frozen=True)
class Address:
    """The driver's address and secret for the tasks; picklable."""

    host: str
    port: int
    secret: bytes = field(repr=False)


class EpochServer:
    """The driver's side of the connections."""

    def __init__(self, host: str, port: int, must_end: Callable[[], bool], tasks: int = 1) -> None:
        """Listen.

        Args:
            host: an address of this machine that the executors can reach.
            port: port to listen on; 0: any free port.
            must_end: called every LOOK_S during an epoch; True ends it.
            tasks: number of tasks of an epoch, which connect at the same time.
        """
        self._must_end = must_end
        self._listener = socket.create_server((host, port), backlog=256)
        self.address = Address(host, self._listener.getsockname()[1], secrets.token_hex(16).encode())
        self._lock = threading.Lock()
        self._epoch, self._deadline, self._ended = -1, 0.0, True
        self._tasks: dict[socket.socket, tuple[int, int]] = {}
        """Connection -> epoch and key group."""
        self._done: set[socket.socket] = set()
        """Connections of tasks that wait for their turn."""
        self._max_strangers = MAX_STRANGERS + tasks
        self._strangers: dict[socket.socket, float] = {}
        """Connection that has not sent the secret yet -> time by which it has to, oldest first."""
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="epochs", daemon=True)
        self._thread.start()

    def begin(self, epoch: int, seconds: float) -> None:
        """Begin an epoch that runs for some time; tasks of any other epoch are ended.

        Raises:
            EpochError: nothing could end the epoch, because the server's thread has died.
        """
        if not self._thread.is_alive():
            raise EpochError("the thread that ends epochs has died, see the log above; start the job again")
        with self._lock:
            self._epoch, self._deadline, self._ended = epoch, time.monotonic() + seconds, False

    def close(self) -> None:
        """End the running epoch and stop listening."""
        self._closed = True
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closed:
                self._serve()
        except Exception:  # an epoch without an end would be worse than one that ends early
            log.exception("epochs can no longer be ended")
        with self._lock:
            self._end()
        for connection in [*self._tasks]:  # a task that waits for its turn finishes
            self._forget(connection)
        self._selector.close()
        self._listener.close()

    def _serve(self) -> None:
        with self._lock:
            timeout_s = LOOK_S if self._ended else min(LOOK_S, max(0.0, self._deadline - time.monotonic()))
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._listener:
                self._welcome()
            elif key.fileobj in self._tasks:
                self._hear(key.fileobj)
            elif key.fileobj in self._strangers:  # not dropped for another one meanwhile
                self._greet(key.fileobj)
        self._drop_strangers(self._max_strangers)
        with self._lock:
            if not self._ended and (time.monotonic() >= self._deadline or self._must_end()):
                self._end()

    def _welcome(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as fault:
            log.warning("a connection cannot be accepted: %s", fault)
            self._drop_strangers(0)  # there may be no descriptors left
            time.sleep(LOOK_S)  # the client still waits: the selector would return at once
            return
        connection.setblocking(False)  # a silent or blocked client must not delay the others
        self._selector.register(connection, selectors.EVENT_READ)
        self._strangers[connection] = time.monotonic() + GREETING_S
        self._drop_strangers(self._max_strangers)

    def _drop_strangers(self, most: int) -> None:
        """Drop clients that have not sent the secret in time, and the oldest ones beyond a number."""
        now = time.monotonic()
        while self._strangers:
            oldest, deadline = next(iter(self._strangers.items()))
            if len(self._strangers) <= most and now < deadline:
                return
            del self._strangers[oldest]
            self._drop(oldest)

    def _greet(self, connection: socket.socket) -> None:
        """Register a task by its first packet; drop a client whose packet is incomplete or wrong."""
        del self._strangers[connection]
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
        with self._lock:
            is_current = epoch == self._epoch
            if not is_current or self._ended:
                _send(connection, _END)
        if is_current:  # Spark has given an earlier task of the group up: it may be on a machine that is gone
            for earlier in [other for other, task in self._tasks.items() if task == (epoch, group)]:
                self._forget(earlier)
        self._tasks[connection] = epoch, group

    def _hear(self, connection: socket.socket) -> None:
        try:
            request = connection.recv(1)
        except OSError:
            request = b""
        if request == _END:
            with self._lock:
                self._deadline = 0.0
            return
        if request == _DONE:
            self._done.add(connection)
        else:
            if self._done:
                time.sleep(min(APART_S, ALL_APART_S / len(self._tasks)))
            self._forget(connection)
        self._give_turns()

    def _give_turns(self) -> None:
        """Let the lowest group's task finish, if it is done, and tasks of no epoch that is ending."""
        with self._lock:
            ending = self._epoch if self._ended else None
        lowest = min((task for task in self._tasks.values() if task[0] == ending), default=None)
        for connection in [*self._done]:
            task = self._tasks[connection]
            if task == lowest or task[0] != ending:
                self._done.remove(connection)
                _send(connection, _TURN)

    def _forget(self, connection: socket.socket) -> None:
        """Close the connection of a task."""
        del self._tasks[connection]
        self._done.discard(connection)
        self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()

    def _end(self) -> None:
        """End every task."""
        self._ended = True
        for connection in self._tasks:
            _send(connection, _END)


def _send(connection: socket.socket, message: bytes) -> None:
    with suppress(OSError):  # the task has ended already
        connection.send(message)


class Epoch:
    """A task's side of the connection; a context manager."""

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
        """Return whether the driver has ended the epoch, or is gone."""
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
        """Ask the driver to end the epoch for all groups."""
        if not self._asked:
            self._asked = True
            try:
                self._socket.send(_END)
            except OSError:
                self._over = True

    def wait_for_turn(self) -> None:
        """Wait until the tasks of all lower groups have finished, or the driver is gone."""
        with suppress(OSError):
            self._socket.setblocking(True)
            self._socket.send(_DONE)
            while self._socket.recv(1) not in (_TURN, b""):
                pass

    def __enter__(self) -> "Epoch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

"""The end of epochs: the driver decides when an epoch ends, and tells its tasks over a socket.

Each task of an epoch keeps a connection to the driver, over which one byte from the driver ends the epoch. A
byte from the task asks the driver to end it early; another one, to do so once every task has sent it. If the
job is to stop, the driver sends another byte, which ends the epoch, and the waits of the task, too (see
`pauses`). The loop of a key group, which outlives its tasks, keeps a connection of its own (`DriverWatch`): a
loop whose driver is gone must not continue. A client has to send a secret, which Spark gives to the tasks.

A task can also send a verdict: an error that no new attempt can mend. Spark knows no such errors and would
try the task again, up to four times. So the driver cancels Spark's job, and the task waits for that.
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
from typing import Self

from feature_store.errors import FraudError

log = logging.getLogger(__name__)

_HELLO = struct.Struct("<32sq")
"""Secret and epoch."""
_END, _STOP = b".", b"!"
_DONE = b","
_NO_EPOCH = -1
"""Sent in place of an epoch by a connection that only watches the driver."""
_LINE = b"\n"
"""End of a verdict, which is one line of text and does not begin with _END or _DONE."""
LOOK_S = 0.1
"""Interval at which the driver checks whether the epoch has to end early."""
CONNECT_TIMEOUT_S = 20.0
AUTHENTICATION_S = 10.0
"""Time in which a client has to send its secret; a task does so at once."""
RECEIVE_BYTES = 4096
REPORT_S = 60.0
"""Longest time for which a task waits to be cancelled after its verdict; then it fails as any other task."""
MAX_UNAUTHENTICATED = 64
"""Of the connections that have not sent the secret yet, the driver keeps at most this number plus twice the
number of tasks; if there are more, it drops the oldest."""


class EpochError(FraudError):
    """A task cannot reach the driver, which ends epochs, or the driver's thread that does so has died.

    If the driver does not answer: set `spark.driver.host` in `FRAUD_SPARK` to an address that the executors
    reach, and open the port. In both cases start the job again.
    """


@dataclass(frozen=True)
class Address:
    """The driver's address and secret for the tasks; picklable."""

    host: str
    port: int
    secret: bytes = field(repr=False)


class EpochServer:
    """The driver's side of the connections."""

    def __init__(
        self,
        host: str,
        port: int,
        must_end: Callable[[], bool],
        tasks: int = 1,
        cancel: Callable[[], None] = lambda: None,
        must_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Listen, and start the thread that ends epochs.

        Args:
            host: an address of this machine that the executors can reach.
            port: port to listen on; 0: any free port.
            must_end: called at least every LOOK_S during an epoch; True ends it.
            tasks: number of tasks of an epoch, each of which may make two connections at the same time.
            cancel: called after the first verdict of a task; cancels the epoch's tasks.
            must_stop: called at least every LOOK_S; True tells the tasks that the job is to stop, which ends
                the running epoch, too.
        """
        self.verdict: str | None = None
        """The first verdict of a task: qualified name of the error, colon, message."""
        self._cancel = cancel
        self._must_end, self._must_stop, self._is_stopping = must_end, must_stop, False
        self._listener = socket.create_server((host, port), backlog=256)
        self.address = Address(host, self._listener.getsockname()[1], secrets.token_hex(16).encode())
        self._lock = threading.Lock()
        self._epoch, self._deadline, self._ended = _NO_EPOCH, 0.0, True
        self.ended_for_good = False
        """Whether the tasks of the newest epoch learned that the job is to stop before they ended."""
        self._tasks: dict[socket.socket, bytes] = {}
        """Connection of each task -> what it has sent and has not been handled."""
        self._number = tasks
        self._done: set[socket.socket] = set()
        """Connections of tasks that need no more time in this epoch."""
        self._max_unauthenticated = MAX_UNAUTHENTICATED + 2 * tasks
        self._unauthenticated: dict[socket.socket, float] = {}
        """Connection that has not sent the secret yet -> time by which it has to, oldest first."""
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="epochs", daemon=True)
        self._thread.start()

    def begin(self, epoch: int, seconds: float) -> None:
        """Begin an epoch that runs for `seconds`; a task that connects for any other epoch is ended at once.

        Raises:
            EpochError: nothing could end the epoch, because the server's thread has died.
        """
        if not self._thread.is_alive():
            raise EpochError("the thread that ends epochs has died, see the log above; start the job again")
        with self._lock:
            self._epoch, self._deadline = epoch, time.monotonic() + seconds
            self._ended = self.ended_for_good = self._is_stopping
            self._done.clear()

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
        for connection in self._tasks:
            connection.close()
        self._selector.close()
        self._listener.close()

    def _serve(self) -> None:
        with self._lock:
            timeout_s = LOOK_S if self._ended else min(LOOK_S, max(0.0, self._deadline - time.monotonic()))
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj in self._tasks:
                self._receive(key.fileobj)
            elif key.fileobj in self._unauthenticated:  # else it was dropped meanwhile, to make room
                self._authenticate(key.fileobj)
        self._drop_unauthenticated(self._max_unauthenticated)
        must_stop = not self._is_stopping and self._must_stop()
        with self._lock:
            if must_stop:
                self._is_stopping, self.ended_for_good, self._ended = True, not self._ended, True
                self._tell(_STOP)
            elif not self._ended and (time.monotonic() >= self._deadline or self._must_end()):
                self._end()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as fault:
            log.warning("a connection cannot be accepted: %s", fault)
            self._drop_unauthenticated(0)  # there may be no file descriptors left
            time.sleep(LOOK_S)  # the pending connection would make the selector return at once
            return
        connection.setblocking(False)  # a silent or blocked client must not delay the others
        self._selector.register(connection, selectors.EVENT_READ)
        self._unauthenticated[connection] = time.monotonic() + AUTHENTICATION_S
        self._drop_unauthenticated(self._max_unauthenticated)

    def _drop_unauthenticated(self, most: int) -> None:
        """Drop clients that have not sent the secret in time, and the oldest ones beyond `most`."""
        now = time.monotonic()
        while self._unauthenticated:
            oldest, deadline = next(iter(self._unauthenticated.items()))
            if len(self._unauthenticated) <= most and now < deadline:
                return
            del self._unauthenticated[oldest]
            self._drop(oldest)

    def _authenticate(self, connection: socket.socket) -> None:
        """Register a task by its first packet; drop a client whose packet is incomplete or wrong."""
        del self._unauthenticated[connection]
        try:
            hello = connection.recv(_HELLO.size)
        except OSError:
            hello = b""
        if len(hello) != _HELLO.size:
            self._drop(connection)
            return
        secret, epoch = _HELLO.unpack(hello)
        if not hmac.compare_digest(secret, self.address.secret):
            self._drop(connection)
            return
        self._tasks[connection] = b""
        with self._lock:
            if self._is_stopping:
                _send(connection, _STOP)
            elif epoch != self._epoch or self._ended:
                _send(connection, _END)

    def _receive(self, connection: socket.socket) -> None:
        try:
            received = connection.recv(RECEIVE_BYTES)
        except OSError:
            received = b""
        if not received:
            del self._tasks[connection]
            self._drop(connection)
            return
        sent = self._tasks[connection] + received
        with self._lock:
            if sent.startswith(_DONE):
                self._done.add(connection)
                sent = sent.removeprefix(_DONE)
            if sent.startswith(_END) or len(self._done) == self._number:
                self._deadline = 0.0
                sent = sent.removeprefix(_END)
        verdict, end, rest = sent.partition(_LINE)
        self._tasks[connection] = rest if end else sent
        if end and self.verdict is None:
            self.verdict = verdict.decode(errors="replace")
            self._cancel()

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()

    def _end(self) -> None:
        """End the epoch: send every connected task the byte."""
        self._ended = True
        self._tell(_END)

    def _tell(self, order: bytes) -> None:
        for connection in self._tasks:
            _send(connection, order)


def _send(connection: socket.socket, order: bytes) -> None:
    with suppress(OSError):  # the task has ended already
        connection.send(order)


class DriverWatch:
    """A connection to the driver, from which a loop learns that it must stop; a context manager."""

    def __init__(self, address: Address, number: int = _NO_EPOCH) -> None:
        """Connect.

        Raises:
            EpochError: the driver does not answer.
        """
        try:
            self._socket = socket.create_connection((address.host, address.port), CONNECT_TIMEOUT_S)
            self._socket.sendall(_HELLO.pack(address.secret, number))
        except OSError as fault:
            raise EpochError(
                f"the job's driver does not answer at {address.host}:{address.port} ({fault}); executors "
                "must reach it: set spark.driver.host in FRAUD_SPARK, and open the port to them"
            ) from fault
        self._socket.setblocking(False)
        self._stopping = self._gone = False
        self._first: bytes | None = None
        """The first order; empty: the driver was gone before any."""

    def must_stop(self) -> bool:
        """Return whether the driver was told to stop the job, or is gone."""
        if not self._stopping:
            self._receive()
        return self._stopping

    def is_gone(self) -> bool:
        """Return whether the driver has ended."""
        if not self._gone:
            self._receive()
        return self._gone

    def _receive(self) -> None:
        try:
            orders = self._socket.recv(len(_END + _STOP))
        except BlockingIOError:
            return
        except OSError:
            orders = b""
        if self._first is None:
            self._first = orders[:1]
        self._gone = not orders
        self._stopping = self._stopping or self._gone or _STOP in orders

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Epoch(DriverWatch):
    """A task's side of the connection."""

    def __init__(self, address: Address, number: int) -> None:
        """Connect."""
        super().__init__(address, number)
        self.number = number
        self._asked = b""

    def is_over(self) -> bool:
        """Return whether the driver has ended the epoch, or is gone."""
        if self._first is None:
            self._receive()
        return self._first is not None

    @property
    def is_last(self) -> bool:
        """Whether the epoch was ended because the job stops, so that no other one follows."""
        return self._first is not None and self._first != _END

    def ask_for_end(self, *, of_all: bool = False) -> None:
        """Ask the driver to end the epoch for all groups; with `of_all`, once all of them have asked so."""
        order = _DONE if of_all else _END
        if order not in self._asked:
            self._asked += order
            try:
                self._socket.send(order)
            except OSError:
                self._first = self._first or b""

    def report(self, fault: FraudError) -> None:
        """Send a verdict to the driver, and wait until it has cancelled this task, REPORT_S at most."""
        kind = type(fault)
        text = " ".join(f"{kind.__module__}.{kind.__qualname__}: {fault}".split())
        with suppress(OSError):
            self._socket.settimeout(REPORT_S)
            self._socket.sendall(text.encode() + _LINE)
            while self._socket.recv(RECEIVE_BYTES):
                pass

"""A TCP proxy that injects network faults into single requests to one Kafka broker.

A fault is armed for one API and hits the next request of that API. Frames are those of Kafka's protocol
(https://kafka.apache.org/protocol): four bytes of length; then a request has its API key in two bytes, its
version in two and its correlation id in four, and a response begins with the correlation id of its request.
"""

import asyncio
import itertools
import random
import struct
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

HOST = "127.0.0.1"
ANSWER_S = 30.0
_GONE = (OSError, asyncio.IncompleteReadError, TimeoutError)
"""Errors of a connection that either side has closed, or on which the broker does not respond in time."""
_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_NUMBER = struct.Struct(">i")


class Api(IntEnum):
    """Kafka APIs by API key: those of a producer's transaction, and a look at the ends of the log."""

    PRODUCE = 0
    LIST_OFFSETS = 2
    ADD_PARTITIONS = 24
    ADD_OFFSETS = 25
    END_TRANSACTION = 26
    COMMIT_OFFSETS = 28


ALWAYS = (Api.PRODUCE, Api.END_TRANSACTION, Api.COMMIT_OFFSETS)
"""What each transaction calls; some call the others, too (decision 216)."""
OFTEN = (*ALWAYS, Api.LIST_OFFSETS)
"""What a key group calls all the time."""


class Kind(StrEnum):
    """Kinds of network faults."""

    REQUEST_LOST = "request lost"
    """The request never arrives; the connection breaks."""
    ANSWER_LOST = "answer lost"
    """The broker handles the request, but the connection breaks before the response."""
    ANSWER_LATE = "answer late"
    """The response, and all later ones of the connection, arrive after the delay."""
    REQUEST_LATE = "request late"
    """The connection breaks; the request still arrives after the delay, usually after the client's retry."""
    SILENCE = "silence"
    """The connection gets no response, and stays open for the delay."""


@dataclass(frozen=True)
class Fault:
    """One network fault."""

    api: Api
    kind: Kind
    delay_s: float = 0.0

    def __str__(self) -> str:
        """Return the name used in reports."""
        return f"{self.api.name.lower()}: {self.kind}, {self.delay_s:.1f} s"


def draw(chance: random.Random, count: int, longest_s: float, apis: Sequence[Api] = ALWAYS) -> list[Fault]:
    """Draw faults, each kind for each API equally often.

    Args:
        longest_s: upper bound of the delays, seconds.
    """
    faults: list[Fault] = []
    while len(faults) < count:
        pairs = list(itertools.product(apis, Kind))
        chance.shuffle(pairs)
        faults += [Fault(api, kind, chance.uniform(0.1, longest_s)) for api, kind in pairs]
    return faults[:count]


@dataclass(eq=False)
class _Connection:
    """One client's connection, and the connection to the broker behind it."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    abandoned: bool = False
    """Whether the client was cut off although its request is still to be forwarded."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the broker responds after the client was cut off."""
    faults: dict[int, Fault] = field(default_factory=dict)
    """Faults of responses, by correlation id of the request."""

    def cut(self) -> None:
        """Abort both connections."""
        for writer in (self.client, self.broker):
            writer.transport.abort()


class Proxy:
    """Forwards frames between clients and a broker in its own thread; a context manager."""

    def __init__(self, port: int, broker_port: int) -> None:
        """Listen to nothing yet.

        Args:
            port: port to listen on, which the broker advertises.
        """
        self._port, self._broker_port = port, broker_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._armed: Fault | None = None
        self._server: asyncio.Server | None = None
        self.injected: list[Fault] = []
        """Faults that were injected, in order."""
        self.late = 0
        """Number of delayed requests to which the broker has not yet responded."""

    def __enter__(self) -> "Proxy":
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, HOST, self._port))
        return self

    def __exit__(self, *_: object) -> None:
        """Abort all connections and stop."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def arm(self, fault: Fault) -> None:
        """Inject a fault into the next request of its API."""
        self._armed = fault

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def _cut_all(self) -> None:
        for connection in self._connections:
            connection.cut()

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._cut_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            from_broker, broker = await asyncio.open_connection(HOST, self._broker_port)
            connection = _Connection(writer, broker)
            self._connections.add(connection)
            back = asyncio.create_task(self._answers(from_broker, connection))
            try:
                await self._requests(reader, connection)
            finally:
                self._connections.discard(connection)
                connection.cut()
                await back
        except (*_GONE, asyncio.CancelledError):  # `_close` cancels, and ignores how a task ends
            writer.transport.abort()
        finally:
            self._tasks.discard(task)

    async def _requests(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while True:
            frame = await _frame(reader)
            api, _, number = _REQUEST.unpack_from(frame, _LENGTH.size)
            fault = self._armed
            if fault is not None and fault.api == api:
                self._armed = None
                if fault.kind == Kind.REQUEST_LOST:
                    self.injected.append(fault)
                    return
                if fault.kind == Kind.REQUEST_LATE:
                    connection.abandoned = True
                    connection.client.transport.abort()
                    self.late += 1
                    self.injected.append(fault)
                    try:
                        await asyncio.sleep(fault.delay_s)
                        connection.answered.clear()
                        connection.broker.write(frame)
                        # no client waits for the response any more, but the connection stays open until the
                        # broker has handled the request
                        await asyncio.wait_for(connection.answered.wait(), ANSWER_S)
                    finally:
                        self.late -= 1
                    return
                connection.faults[number] = fault
            connection.broker.write(frame)
            await connection.broker.drain()

    async def _answers(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        try:
            while True:
                frame = await _frame(reader)
                (number,) = _NUMBER.unpack_from(frame, _LENGTH.size)
                if connection.abandoned:
                    connection.answered.set()
                    continue
                fault = connection.faults.pop(number, None)
                if fault is not None:
                    self.injected.append(fault)
                    if fault.kind != Kind.ANSWER_LOST:
                        await asyncio.sleep(fault.delay_s)
                    if fault.kind != Kind.ANSWER_LATE:
                        return
                connection.client.write(frame)
                await connection.client.drain()
        except _GONE:
            pass
        finally:
            connection.cut()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(_LENGTH.size)
    return head + await reader.readexactly(*_LENGTH.unpack(head))

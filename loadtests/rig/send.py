"""The sender of all tools, an open loop: records leave when they are due, however slow the system is.

What is late is sent as fast as possible, and its delay is measured as slip: the time from when a record was
due to the call of the Kafka client. A tool passes parts of a tape: simulated transactions and labels, a
replayed file, or the encoded transactions of a load test.
"""

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, KafkaException, Message

from feature_store.errors import FraudError
from loadtests.rig.pace import TICK_S, Pace, SteadyClock, TimedRecords, paced
from streaming_job.log import clients
from streaming_job.log.clients import Brokers

CONNECT_S = 15.0
FLUSH_S = 60.0
MEANWHILE_S = 0.25
"""Least time between two calls of `meanwhile`, seconds."""
FULL_S = 0.01
"""Wait for a place in the producer's full queue, seconds."""
AHEAD = 2
"""Parts that are made ahead of sending."""
SWITCH_S = 0.0005
"""Switch interval, seconds: how long a thread may hold the GIL while another waits. With Python's 5 ms, one
wait could delay the sender by the whole slip that a load test allows."""
TUNING: clients.Settings = {
    **clients.BULK,
    # the largest malformed record of the simulator is a megabyte
    "message.max.bytes": 2 * 1024 * 1024,
    "message.timeout.ms": 120_000,
}
TRANSACTION: clients.Settings = {"transaction.timeout.ms": 600_000}
INTENDED_AT = "intended_at"
"""Record header with the time at which the record was due, microseconds since 1970-01-01 UTC, decimal."""

OnSent = Callable[[npt.NDArray[Any], npt.NDArray[np.int64]], None]
"""Called with times on the tape, ms, and slips, us, of records that were just sent; shape (n,) each."""


class SendError(FraudError):
    """Kafka did not accept the records of a tool, or their topic is missing or unsuitable.

    Check the brokers, and the topic that the message names.
    """


Made = TypeVar("Made")


def ahead(parts: Iterable[Made]) -> Iterator[Made]:
    """Yield parts that another thread makes a few steps ahead, so that making them delays no record."""
    with ThreadPoolExecutor(1) as pool:
        source = iter(parts)
        made = deque(pool.submit(next, source, None) for _ in range(AHEAD))
        while (part := made.popleft().result()) is not None:
            made.append(pool.submit(next, source, None))
            yield part


class Sender:
    """One producer for all topics of a tape. Other threads may read its attributes and call `stop`."""

    def __init__(
        self,
        brokers: Brokers,
        *,
        tuning: clients.Settings | None = None,
        fixed: clients.Settings | None = None,
        clock: SteadyClock | None = None,
        stamped: bool = False,
        headed: bool = False,
        strict: bool = True,
    ) -> None:
        """Create the producer, which connects in the background.

        Args:
            brokers: where to connect. With `transactional.id` among their settings or in `fixed`, each `send`
                is one Kafka transaction: read_committed consumers see nothing before its end.
            stamped: whether records carry their times on the tape as timestamps (the topics must have
                CreateTime); otherwise the broker sets timestamps.
            headed: whether records get the header INTENDED_AT.
            strict: whether a record that is not delivered ends the sending; otherwise it is only counted.
        """
        self.clock = clock or SteadyClock()
        self._stamped, self._headed, self._strict = stamped, headed, strict
        self._transactional = "transactional.id" in {**brokers.kafka, **(fixed or {})}
        self._producer = clients.producer(
            brokers,
            tuning={**TUNING, **(TRANSACTION if self._transactional else {}), **(tuning or {})},
            fixed={**clients.PIPELINED, **(fixed or {})},
            on_delivery=self._undelivered,
        )
        self._initialised = False
        self._until_ms = float("inf")
        self.stopped = False
        self.sent: Counter[str] = Counter()
        """Records given to the producer, by topic; all delivered once `send` has returned."""
        self.refused = 0
        """Records that were not delivered."""
        self.error: str | None = None
        """Why the first of them was not."""
        self.slip_ms = 0.0
        """Delay of the newest records; grows if the machine cannot send at the rate."""

    def stop(self) -> None:
        """Make `send` end soon; callable from any thread and from signal handlers."""
        self.stopped = True

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged records."""
        return max(0, self.sent.total() - self.refused - len(self._producer))

    def connect(self, topic: str) -> None:
        """Connect and learn a topic's partitions now, instead of with the first records.

        Raises:
            SendError: no broker answers.
        """
        try:
            self._producer.list_topics(topic, CONNECT_S)
        except KafkaException as error:
            raise SendError(
                f"no broker answers: {clients.describe(error)}; check address and brokers"
            ) from error

    def may_go_on(self) -> bool:
        """Return whether records may still be sent: not stopped, and time is left."""
        return not self.stopped and self.clock.now_ms() < self._until_ms

    def pause(self) -> bool:
        """Wait for one tick, for a tape that is still being written; returns `may_go_on`."""
        self._poll()
        self.clock.wait(TICK_S)
        return self.may_go_on()

    def send(
        self,
        parts: Iterable[TimedRecords],
        pace: Pace | None = None,
        *,
        until_ms: float = float("inf"),
        meanwhile: Callable[[], None] = lambda: None,
        on_sent: OnSent = lambda _, __: None,
    ) -> Counter[str]:
        """Send until the parts end, `stop` is called, or the time is over, and flush; blocks.

        Args:
            pace: mapping of the tape's time to real time; default `Pace.live()`.
            until_ms: time after which nothing is sent, ms since 1970-01-01 UTC.
            meanwhile: called a few times a second, between records.
            on_sent: called after each group of records, unless the speed is inf.

        Returns:
            Records given to the producer by topic, all delivered.

        Raises:
            SendError: a record was refused or not delivered, or the Kafka transaction failed.
        """
        pace = pace or Pace.live()
        with self._transaction() if self._transactional else self._flushed():
            made = parts if pace.is_at_once else ahead(parts)
            self.run(made, pace, until_ms=until_ms, meanwhile=meanwhile, on_sent=on_sent)
        return self.sent

    def run(
        self,
        parts: Iterable[TimedRecords],
        pace: Pace,
        *,
        until_ms: float = float("inf"),
        meanwhile: Callable[[], None] = lambda: None,
        on_sent: OnSent = lambda _, __: None,
    ) -> None:
        """Do as `send`, but without a flush or a Kafka transaction; no thread makes the parts ahead."""
        self._until_ms = until_ms
        called_ms = 0.0
        if not pace.is_at_once:
            sys.setswitchinterval(SWITCH_S)
        for part, start, end in paced(parts, pace, self.clock, self.may_go_on):
            if end > start:
                at = part.at[start:end]
                due_ms = pace.due_ms(at)
                count = self._produce(part, start, end, due_ms)
                if count and not pace.is_at_once:
                    slips_us = ((self.clock.now_ms() - due_ms[:count]) * 1_000).astype(np.int64)
                    self.slip_ms = float(slips_us[0]) / 1_000
                    on_sent(at[:count], slips_us)
            self._poll()
            if (now := self.clock.now_ms()) >= called_ms + MEANWHILE_S * 1_000:
                called_ms = now
                meanwhile()

    def _produce(self, part: TimedRecords, start: int, end: int, due_ms: npt.NDArray[np.float64]) -> int:
        """Produce records; returns how many before sending had to end."""
        topic, produce, sent = part.topic, self._producer.produce, 0
        values, keys = part.columns(start, end)
        # partition, two callbacks, timestamp and headers are positional: keywords cost 0.4 us per record
        columns: list[Iterable[Any]] = [repeat(topic), values, keys]
        if self._stamped or self._headed:
            stamps = part.at[start:end].tolist() if self._stamped else repeat(0)
            columns += [repeat(-1), repeat(None), repeat(None), stamps]
        if self._headed:
            due_us = np.rint(due_ms * 1_000).astype(np.int64).tolist()
            columns.append([[(INTENDED_AT, b"%d" % us)] for us in due_us])
        try:
            for row in zip(*columns, strict=False):
                while True:
                    try:
                        produce(*row)
                        break
                    except BufferError:
                        # the queue is full, because the broker is slower; the wait counts as slip
                        self._poll(FULL_S)
                        if not self.may_go_on():
                            return sent
                sent += 1
        except KafkaException as error:
            raise SendError(
                f"Kafka refused a record for {topic}: {clients.describe(error)}; see the broker's log"
            ) from error
        finally:
            self.sent[topic] += sent
        return sent

    def _undelivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.refused += 1
            self.error = self.error or error.str()

    def _poll(self, seconds: float = 0) -> None:
        self._producer.poll(seconds)
        if self._strict and self.error is not None:
            raise SendError(
                f"a record was not delivered: {self.error}; see the broker's log, then start again"
            )

    def flush(self, patience_s: float = FLUSH_S) -> int:
        """Wait for acknowledgements; returns the number of records without one."""
        return int(self._producer.flush(patience_s))

    @contextmanager
    def _flushed(self) -> Iterator[None]:
        yield
        unsent = self.flush()
        self._poll()
        if unsent:
            raise SendError(f"{unsent} records are still unsent after {FLUSH_S:.0f} s; check the broker")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            if not self._initialised:
                self._producer.init_transactions(FLUSH_S)
                self._initialised = True
            self._producer.begin_transaction()
        except KafkaException as error:
            raise SendError(
                f"no Kafka transaction could be begun: {clients.describe(error)}; check the broker"
            ) from error
        yield
        try:
            self._producer.commit_transaction(FLUSH_S)
        except KafkaException as error:
            raise SendError(
                f"the Kafka transaction was not committed: {clients.describe(error)}; see the broker's log, "
                "then start again"
            ) from error

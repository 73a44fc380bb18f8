"""Sender of a tape, the recorded input: parts, each in one Kafka transaction, then the rest in real time."""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError

from loadtests.compare.errors import CompareError
from loadtests.compare.tape import Tape
from streaming_job.log import clients
from streaming_job.log.clients import Address, Producer

TICK_S = 0.001
CHECK_S = 1.0
FLUSH_S = 60.0


class Feed:
    """Sender of a tape to one topic; each method continues where the previous call stopped."""

    def __init__(self, bootstrap_servers: str, topic: str, tape: Tape) -> None:
        self._topic, self._tape = topic, tape
        self._brokers = Address(bootstrap_servers)
        self._fault: KafkaError | None = None
        self._at = 0
        self.slips_ms: npt.NDArray[np.float64] = np.empty(0)
        """Delays from the intended to the actual sending of the transactions that `live` sends, ms."""

    def at_once(self, events: int) -> None:
        """Send the next transactions in one Kafka transaction; read_committed consumers see them all at once.

        Raises:
            CompareError: records were not delivered.
        """
        producer = self._producer({"transactional.id": f"compare-{self._topic}"})
        producer.init_transactions(FLUSH_S)
        producer.begin_transaction()
        self._produce(producer, self._at + events)
        producer.commit_transaction(FLUSH_S)
        self._check()

    def live(self, start: float, meanwhile: Callable[[float], None]) -> None:
        """Send the rest at the pace of the tape's arrivals, without waiting for the engine (an open loop).

        Args:
            start: intended time of the first transaction of the rest, seconds since 1970-01-01 UTC.
            meanwhile: called at most once a second, with the seconds since `start`.

        Raises:
            CompareError: records were not delivered.
        """
        tape, begin = self._tape, self._at
        due = start + (tape.arrivals[begin:] - tape.live_start_ms) / 1_000
        slips = np.empty(len(due))
        producer, last_call = self._producer(), start - CHECK_S
        while self._at < len(tape):
            now = time.time()
            end = begin + int(np.searchsorted(due, now, side="right"))
            if end > self._at:
                slips[self._at - begin : end - begin] = now - due[self._at - begin : end - begin]
                self._produce(producer, end)
            elif now >= last_call + CHECK_S:
                last_call = now
                meanwhile(now - start)
            else:
                producer.poll(0)
                time.sleep(TICK_S)
        if producer.flush(FLUSH_S):
            raise CompareError("records were not delivered; check the broker")
        self._check()
        self.slips_ms = slips * 1_000

    def _producer(self, fixed: clients.Settings | None = None) -> Producer:
        return clients.producer(
            self._brokers, tuning=clients.BULK, fixed=fixed, on_delivery=self._undelivered
        )

    def _produce(self, producer: Producer, end: int) -> None:
        tape, topic = self._tape, self._topic
        for index in range(self._at, end):
            while True:
                try:
                    # partition, two callbacks and timestamp are positional: keywords cost 0.4 us per record
                    producer.produce(
                        topic, tape.values[index], tape.keys[index], -1, None, None, int(tape.arrivals[index])
                    )
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
        self._at = end

    def _undelivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._fault = error

    def _check(self) -> None:
        if self._fault is not None:
            raise CompareError(f"a record was not delivered: {self._fault.str()}; check the broker")

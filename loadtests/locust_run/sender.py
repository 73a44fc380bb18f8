"""Open-loop sender: sends one worker's transactions at their intended times, however the job behaves."""

import time
from collections import deque
from itertools import repeat

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError

from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.tape import Segment, Tape
from loadtests.rig.native import NativeThread, sleep
from streaming_job.log import clients
from streaming_job.log.clients import Brokers

INTENDED_AT = "intended_at"
"""Record header with the intended sending time, microseconds since 1970-01-01 UTC, decimal."""
TICK_S = 0.001
CHUNK = 256
"""Maximal number of records between two readings of the clock; reached when the sender is late."""
GRACE_S = 1.0
"""Sending may go on for this long after the schedule's end, seconds; what is not sent by then is unsent."""
SETTLE_S = 0.05
"""Time for the last acknowledgements before `acknowledged_at_end` is read, seconds."""
FLUSH_S = 10.0
PRODUCER = {**clients.BULK, "queue.buffering.max.messages": 200_000, "message.timeout.ms": 30_000}


class Sender:
    """Thread that produces. Its attributes are read by other threads while it runs."""

    def __init__(
        self,
        brokers: Brokers,
        partitioner: str,
        topic: str,
        tape: Tape,
        *,
        events: int,
        end_s: float,
        measured_from_us: int,
    ) -> None:
        """Create the producer.

        Args:
            brokers: where to connect.
            partitioner: librdkafka's name of the partitioner.
            topic: topic of the transactions.
            tape: the encoded transactions.
            events: number of transactions on the tape; for a replay the maximum.
            end_s: end of the schedule, seconds from the start.
            measured_from_us: end of the warm-up, microseconds from the start.
        """
        self._topic, self._tape, self._end_us = topic, tape, int(end_s * 1e6)
        self._measured_from_us = measured_from_us
        self._producer = clients.producer(
            brokers, tuning=PRODUCER, fixed={"partitioner": partitioner}, on_delivery=self._undelivered
        )
        self.thread = NativeThread(self._run)
        self._start_ns = self._start_wall_us = 0
        self.events = events
        self.sent = 0
        """Records given to the producer."""
        self.sent_measured = 0
        """Records given to the producer that were due after the warm-up."""
        self.refused = 0
        """Records that were not delivered."""
        self.acknowledged_at_end = 0
        """Records acknowledged SETTLE_S after the last one was sent."""
        self.cpu_s = 0.0
        """CPU time of this process from the start until `ended_us`, seconds."""
        self.ended_us = 0
        """Time at which `acknowledged_at_end` was read, microseconds from the start."""
        self.unsent = 0
        """Records not sent, not delivered or not acknowledged at the end."""
        self.slips: deque[npt.NDArray[np.int64]] = deque()
        """Microseconds from intended to actual sending, one array per chunk; the reader removes them."""
        self.error: str | None = None

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged records."""
        return max(0, self.sent - self.refused - len(self._producer))

    def begin(self, start_ns: int, start_wall_us: int) -> None:
        """Start to send at a moment.

        Args:
            start_ns: the start, by `time.monotonic_ns`.
            start_wall_us: the same moment, microseconds since 1970-01-01 UTC.
        """
        self._start_ns, self._start_wall_us = start_ns, start_wall_us
        self.cpu_s = -time.process_time()
        self.thread.start()

    def _now_us(self) -> int:
        return (time.monotonic_ns() - self._start_ns) // 1_000

    def _run(self) -> None:
        for segment in self._tape.segments(self._wait):
            if not self._send(segment):
                break
        self._pause(SETTLE_S)
        self.ended_us, self.acknowledged_at_end = self._now_us(), self.acknowledged
        self.cpu_s += time.process_time()
        unacknowledged = int(self._producer.flush(FLUSH_S))
        # the number of a replay's events is known only now
        self.events = self._tape.events() or self.events
        self.unsent = self.events - self.sent + self.refused + unacknowledged

    def _wait(self) -> bool:
        """Wait for the tape; returns False when sending has to stop."""
        self._pause(TICK_S)
        return self._may_send()

    def _may_send(self) -> bool:
        return not self.thread.stopped and self._now_us() < self._end_us + GRACE_S * 1e6

    def _send(self, segment: Segment) -> bool:
        """Send a segment's records when they are due; returns False if sending has to stop early."""
        due_us, start, count = segment.due_us, 0, len(segment)
        while start < count:
            now = self._now_us()
            if not self._may_send():
                return False
            end = start + int(np.searchsorted(due_us[start : start + CHUNK], now, side="right"))
            if end == start:
                self._pause(min(TICK_S, (int(due_us[start]) - now) / 1e6))
                continue
            if not self._produce(segment, start, end):
                return False
            start = end
        return True

    def _produce(self, segment: Segment, start: int, end: int) -> bool:
        topic, produce, wall, name = self._topic, self._producer.produce, self._start_wall_us, INTENDED_AT
        due = segment.due_us[start:end]
        values = segment.values.slice(start, end - start).to_pylist()
        keys = segment.keys.slice(start, end - start).to_pylist()
        # all arguments are positional (also the two callbacks, None), because keywords cost 0.4 us per record
        headers = [[(name, b"%d" % at)] for at in (due + wall).tolist()]
        nothing = repeat(None)
        rows = zip(
            repeat(topic), values, keys, repeat(-1), nothing, nothing, repeat(0), headers, strict=False
        )
        for sent, row in enumerate(rows):
            while True:
                try:
                    produce(*row)
                    break
                except (
                    BufferError
                ):  # the queue is full, as the brokers are slower than the schedule; the wait counts as slip
                    self._producer.poll(TICK_S)
                    if not self._may_send():
                        self._count(due[:sent])
                        return False
        self._count(due)
        self._producer.poll(0)
        return True

    def _count(self, due_us: npt.NDArray[np.int64]) -> None:
        self.sent += len(due_us)
        self.sent_measured += int(np.count_nonzero(due_us >= self._measured_from_us))
        self.slips.append(self._now_us() - due_us)

    def _pause(self, seconds: float) -> None:
        self._producer.poll(0)
        sleep(max(0.0, seconds))

    def _undelivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.refused += 1
            self.error = self.error or error.str()

    def check(self) -> None:
        """Check that the thread works.

        Raises:
            LoadTestError: the thread failed.
        """
        if self.thread.fault is not None:
            raise LoadTestError(f"sending failed: {self.thread.fault!r}") from self.thread.fault

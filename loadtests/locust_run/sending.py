"""The sending of one worker's transactions, by the common sender in an operating system thread."""

import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.tape import Segment, Tape
from loadtests.rig.histograms import Slips
from loadtests.rig.native import NativeThread, sleep
from loadtests.rig.pace import Pace, SteadyClock
from loadtests.rig.send import Sender
from streaming_job.log.clients import Brokers

GRACE_S = 1.0
"""Sending may go on for this long after the schedule's end, seconds; what is not sent by then is unsent."""
SETTLE_S = 0.05
"""Time for the last acknowledgements before `acknowledged_at_end` is read, seconds."""
FLUSH_S = 10.0
TUNING = {"queue.buffering.max.messages": 200_000, "message.timeout.ms": 30_000}


class Sending:
    """Thread that sends a tape. Its attributes are read by other threads while it runs."""

    def __init__(
        self,
        brokers: Brokers,
        partitioner: str,
        tape: Tape,
        clock: SteadyClock,
        *,
        events: int,
        end_s: float,
        measured_from_s: float,
    ) -> None:
        """Create the producer.

        Args:
            partitioner: librdkafka's name of the partitioner.
            events: number of transactions on the tape; for a replay the maximum.
            end_s: end of the schedule, seconds from the start.
            measured_from_s: end of the warm-up, seconds from the start.
        """
        self._tape, self._clock = tape, clock
        self._end_ms, self._measured_from_ms = end_s * 1_000, measured_from_s * 1_000
        fixed = {"partitioner": partitioner}
        self._sender = Sender(brokers, tuning=TUNING, fixed=fixed, clock=clock, headed=True, strict=False)
        self.thread = NativeThread(self._run)
        self._segments: Iterator[Segment] = iter(())
        self._start_ms = 0.0
        self.events = events
        self.sent_measured = 0
        """Records given to the producer that were due after the warm-up."""
        self.acknowledged_at_end = 0
        """Records acknowledged SETTLE_S after the last one was sent."""
        self.cpu_s = 0.0
        """CPU time of this process from the start until `ended_s`, seconds."""
        self.ended_s = 0.0
        """Time at which `acknowledged_at_end` was read, seconds from the start."""
        self.unsent = 0
        """Records not sent, not delivered or not acknowledged at the end."""
        self.slips = Slips()

    @property
    def sent(self) -> int:
        """Records given to the producer."""
        return self._sender.sent.total()

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged records."""
        return self._sender.acknowledged

    @property
    def error(self) -> str:
        """Why a record was not delivered; empty: all were so far."""
        return self._sender.error or ""

    def prepare(self) -> None:
        """Connect, and map the beginning of the tape, so that the first records wait for neither."""
        self._sender.connect(self._tape.topic)
        segments = self._tape.segments(self._sender.pause)
        self._segments = chain([first] if (first := next(segments, None)) else [], segments)

    def begin(self, start_ms: float) -> None:
        """Start to send at a moment, ms since 1970-01-01 UTC."""
        self._start_ms = start_ms
        self.cpu_s = -time.process_time()
        self.thread.start()

    def stop(self) -> None:
        """Request the end; returns at once."""
        self._sender.stop()

    def check(self) -> None:
        """Raise LoadTestError if the thread failed."""
        if self.thread.fault is not None:
            raise LoadTestError(f"sending failed: {self.thread.fault!r}") from self.thread.fault

    def _run(self) -> None:
        sender = self._sender
        until_ms = self._start_ms + self._end_ms + GRACE_S * 1_000
        sender.run(self._segments, Pace(self._start_ms, 0.0), until_ms=until_ms, on_sent=self._count)
        sleep(SETTLE_S)
        self.acknowledged_at_end = self.acknowledged
        self.ended_s = (self._clock.now_ms() - self._start_ms) / 1_000
        self.cpu_s += time.process_time()
        unacknowledged = sender.flush(FLUSH_S)
        # the number of a replay's events is known only now
        self.events = self._tape.events() or self.events
        self.unsent = self.events - self.sent + sender.refused + unacknowledged

    def _count(self, at_ms: npt.NDArray[Any], slips_us: npt.NDArray[np.int64]) -> None:
        self.sent_measured += int(np.count_nonzero(at_ms >= self._measured_from_ms))
        self.slips.add(at_ms, slips_us)

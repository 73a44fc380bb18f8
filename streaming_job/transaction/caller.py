"""A thread for calls that may never return."""

import queue
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException


class Caller:
    """A thread that makes one call at a time, any of which may never return."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._deadline: float | None = None
        threading.Thread(target=_make, args=(self._calls, self._answers), name="offsets", daemon=True).start()

    def start(self, call: Callable[[], None], limit_s: float) -> None:
        """Begin a call in the thread.

        Args:
            limit_s: the call's own timeout; a call that takes longer is abandoned.
        """
        self._deadline = time.monotonic() + limit_s + 0.1  # later than the call's own timeout
        self._calls.put(call)

    def wait(self) -> None:
        """Wait for the end of the call that was begun, if there is one.

        Raises:
            KafkaException: the call raised it; or the call was abandoned, and the thread can make no other
                call.
        """
        if self._deadline is None:
            return
        try:
            fault = self._answers.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except queue.Empty:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer about the offsets")) from None
        self._deadline = None
        try:
            if fault is not None:
                raise fault
        finally:
            del fault  # breaks the reference cycle of the exception, its traceback and this frame

    def close(self) -> None:
        """End the thread after its current call."""
        self._calls.put(None)


def _make(
    calls: "queue.SimpleQueue[Callable[[], None] | None]", answers: "queue.SimpleQueue[BaseException | None]"
) -> None:
    while (call := calls.get()) is not None:
        try:
            call()
            answers.put(None)
        except BaseException as fault:  # raised again by `Caller.wait`
            answers.put(fault)
        del call  # a waiting thread would keep it alive, and so the producer that it calls

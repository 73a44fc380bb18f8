"""A thread for calls that may never return."""

import queue
import threading
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException


class Caller:
    """A thread that makes one call at a time, any of which may never return."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=_make, args=(self._calls, self._answers), name="offsets", daemon=True).start()

    def call(self, call: Callable[[], None], limit_s: float) -> None:
        """Make a call in the thread, and wait for its end.

        Args:
            limit_s: the call's own timeout; a call that takes longer is abandoned.

        Raises:
            KafkaException: the call raised it; or the call was abandoned, and the thread can make no other
                call.
        """
        self._calls.put(call)
        try:
            fault = self._answers.get(timeout=limit_s + 0.1)  # later than the call's own timeout
        except queue.Empty:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer about the offsets")) from None
        finally:
            del call  # a traceback would keep it alive, and so the producer that it calls
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
        except BaseException as fault:  # raised again by `Caller.call`
            answers.put(fault)
        del call  # a waiting thread would keep it alive, and so the producer that it calls

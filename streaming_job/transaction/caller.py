"""Calls that may never return, made in a thread that is kept from call to call."""

import queue
import threading
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException


class Caller:
    """A thread that makes calls, one at a time, of which any may never return."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=_make, args=(self._calls, self._answers), name="offsets", daemon=True).start()

    def call(self, call: Callable[[], None], limit_s: float) -> None:
        """Make a call.

        Raises:
            KafkaException: the call's, or no return in time; no other call can be made then.
        """
        self._calls.put(call)
        try:
            fault = self._answers.get(timeout=limit_s + 0.1)  # the call's own word, if it keeps its limit
        except queue.Empty:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer about the offsets")) from None
        finally:
            del call  # an exception would keep it, and with it the producer
        try:
            if fault is not None:
                raise fault
        finally:
            del fault  # or it would keep itself, and all that its traceback knows

    def close(self) -> None:
        """End the thread, once its call returns."""
        self._calls.put(None)


def _make(
    calls: "queue.SimpleQueue[Callable[[], None] | None]", answers: "queue.SimpleQueue[BaseException | None]"
) -> None:
    while (call := calls.get()) is not None:
        try:
            call()
            answers.put(None)
        except BaseException as fault:  # raised again by who asked
            answers.put(fault)
        del call  # or the thread would keep the producer while it waits

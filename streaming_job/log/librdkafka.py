"""librdkafka's consumer, a whole queue of records at a time.

confluent-kafka makes a Python object of each record, which costs three times what fetching it does, and
Spark's own Kafka source copies each record six times on its way to Python (decision 15). This calls the
library that confluent-kafka brings with it, and one kernel copies what has been fetched into Arrow's layout.
"""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import llvmlite.binding as llvm
import numba
import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from feature_store.errors import FraudError
from feature_store.jit import njit
from streaming_job.log.records import Records

CONSUMER = 1
NO_WAIT = 0
WORDS = 8
"""Eight-byte words of rd_kafka_message_t; its layout is part of librdkafka's public interface."""
ERROR, PAYLOAD, SIZE, KEY, KEY_SIZE, OFFSET = 0, 3, 4, 5, 6, 7
"""Words of it."""
END_OF_PARTITION = KafkaError._PARTITION_EOF


class LibraryError(FraudError):
    """librdkafka is not there, or does not take the settings."""


def _find() -> str:
    package = Path(confluent_kafka.__file__).parent
    places = (package.parent / "confluent_kafka.libs", package / ".dylibs")
    found = [str(path) for place in places for path in place.glob("librdkafka*")]
    if not found:
        raise LibraryError("confluent-kafka has come without its librdkafka; install it from its wheel")
    return found[0]


_LIBRARY = _find()
llvm.load_library_permanently(_LIBRARY)  # for the kernels, whose calls are bound by name
_LIB = ctypes.CDLL(_LIBRARY)


def _declared(name: str, result: Any, *arguments: Any) -> Any:
    function = _LIB[name]
    function.restype, function.argtypes = result, arguments
    return function


_conf_new = _declared("rd_kafka_conf_new", c_void_p)
_conf_set = _declared("rd_kafka_conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
_conf_set_error_cb = _declared("rd_kafka_conf_set_error_cb", None, c_void_p, c_void_p)
_conf_destroy = _declared("rd_kafka_conf_destroy", None, c_void_p)
_new = _declared("rd_kafka_new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
_poll = _declared("rd_kafka_poll", c_int, c_void_p, c_int)
_topic_new = _declared("rd_kafka_topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
_queue_new = _declared("rd_kafka_queue_new", c_void_p, c_void_p)
_queue_destroy = _declared("rd_kafka_queue_destroy", None, c_void_p)
_start = _declared("rd_kafka_consume_start_queue", c_int, c_void_p, c_int32, c_int64, c_void_p)
_stop = _declared("rd_kafka_consume_stop", c_int, c_void_p, c_int32)
_batch = _declared("rd_kafka_consume_batch_queue", c_ssize_t, c_void_p, c_int, c_void_p, c_size_t)
_last_error = _declared("rd_kafka_last_error", c_int)

# what stands in a kernel is numba's affair
types: Any = numba.types
_carray: Any = numba.carray  # type: ignore[attr-defined]
_OnError = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)

_timestamp = types.ExternalFunction("rd_kafka_message_timestamp", types.int64(types.int64, types.int64))
_destroy = types.ExternalFunction("rd_kafka_message_destroy", types.void(types.int64))


def _to_pointer(_context, address):  # type: ignore[no-untyped-def]
    """The address as a pointer, inside a kernel."""

    def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = intrinsic(_to_pointer)


@njit(inline="always")
def _message(address):  # type: ignore[no-untyped-def]
    return _carray(_pointer(address), (WORDS,), np.int64)


@njit(cache=True)
def _measure(messages, count, end):  # type: ignore[no-untyped-def]
    """Records before `end`, bytes of values and of keys, position after them, where an error is or -1."""
    records, values, keys, position = 0, 0, 0, np.int64(-1)
    for i in range(count):
        message = _message(messages[i])
        error = np.int32(message[ERROR])
        if error == END_OF_PARTITION or (error == 0 and message[OFFSET] >= end):
            position = max(position, message[OFFSET])
        elif error != 0:
            return records, values, keys, position, i
        else:
            records += 1
            values += message[SIZE]
            keys += message[KEY_SIZE]
            position = message[OFFSET] + 1
    return records, values, keys, position, -1


@njit(cache=True, inline="always")
def _copy(source, size, target, at):  # type: ignore[no-untyped-def]
    if size > 0:
        taken = _carray(_pointer(source), (size,), np.uint8)
        for i in range(size):
            target[at + i] = taken[i]
    return at + size


@njit(cache=True)
def _take(messages, count, end, offsets, times, values, ends, present, keys, key_ends, keyed):  # type: ignore[no-untyped-def]
    """Copy the records before `end` and give all messages back."""
    row, at, key_at = 0, 0, 0
    for i in range(count):
        message = _message(messages[i])
        if np.int32(message[ERROR]) == 0 and message[OFFSET] < end:
            offsets[row] = message[OFFSET]
            times[row] = _timestamp(messages[i], 0)
            at = _copy(message[PAYLOAD], message[SIZE], values, at)
            key_at = _copy(message[KEY], message[KEY_SIZE], keys, key_at)
            present[row] = message[PAYLOAD] != 0
            keyed[row] = message[KEY] != 0
            row += 1
            ends[row], key_ends[row] = at, key_at
        _destroy(messages[i])


@njit(cache=True)
def _give_back(messages, count):  # type: ignore[no-untyped-def]
    for i in range(count):
        _destroy(messages[i])


def load_kernels() -> None:
    """Have the kernels loaded, without anything to do."""
    nothing = np.empty(0, dtype=np.int64)
    _measure(nothing, 0, 0)
    _copied(nothing, 0, 0, 0, 0, 0)
    _give_back(nothing, 0)


@dataclass(frozen=True)
class Taken:
    """What one look into the queue brought."""

    records: Records
    """Those before the end of the range, maybe none."""
    position: int
    """Offset after all that was seen; -1 if nothing was."""
    error: KafkaError | None
    """What went wrong then; fetching has to begin anew."""


def _binary(ends: NDArray[np.int32], data: NDArray[np.uint8], present: NDArray[np.bool_]) -> pa.BinaryArray:
    valid = None
    if not present.all():
        valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), present.size, [valid, pa.py_buffer(ends), pa.py_buffer(data)])


def _copied(
    messages: NDArray[np.int64], count: int, end: int, n: int, key_bytes: int, value_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.BinaryArray, pa.BinaryArray]:
    """Offsets, times, keys and values of the n records before `end`; the messages are given back."""
    offsets, times = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    keys, key_ends = np.empty(key_bytes, dtype=np.uint8), np.zeros(n + 1, dtype=np.int32)
    values, ends = np.empty(value_bytes, dtype=np.uint8), np.zeros(n + 1, dtype=np.int32)
    keyed, present = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_)
    _take(messages, count, end, offsets, times, values, ends, present, keys, key_ends, keyed)
    return offsets, times, _binary(key_ends, keys, keyed), _binary(ends, values, present)


class Queue:
    """Where librdkafka puts what it fetches of one partition."""

    def __init__(self, topic: str, partition: int, handle: int) -> None:
        self._topic, self._partition, self._handle = topic, partition, handle

    def take(self, most: int, end: int, wait_ms: int) -> Taken:
        """Take up to `most` records, all that come within the time.

        Args:
            most: how many.
            end: records from this offset on are dropped.
            wait_ms: how long to wait for as many.
        """
        messages = np.empty(most, dtype=np.int64)
        count = max(_batch(self._handle, wait_ms, messages.ctypes.data, most), 0)
        n, value_bytes, key_bytes, position, failed = _measure(messages, count, end)
        error = None
        if failed >= 0:  # what comes behind it is not sure to be the next
            error = _error(int(messages[failed]))
            _give_back(messages[failed:], count - failed)
            count = failed
        offsets, times, keys, values = _copied(messages, count, end, n, key_bytes, value_bytes)
        records = Records(self._topic, self._partition, offsets, times, keys, values)
        return Taken(records, int(position), error)


def _error(address: int) -> KafkaError:
    message = (c_int64 * WORDS).from_address(address)
    text = ctypes.string_at(message[PAYLOAD], message[SIZE]) if message[PAYLOAD] else b""
    return KafkaError(c_int32(message[ERROR]).value, text.decode(errors="replace") or None)


class Client:
    """One consumer without a group; its threads live as long as the process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Make it; it connects when it is used.

        Args:
            settings: librdkafka's names.

        Raises:
            LibraryError: it does not take them.
        """
        words = ctypes.create_string_buffer(512)
        conf = _conf_new()
        for name, value in settings.items():
            if _conf_set(conf, name.encode(), value.encode(), words, len(words)) != 0:
                _conf_destroy(conf)
                raise LibraryError(f"Kafka client settings: {words.value.decode()}; correct FRAUD_KAFKA")
        self._last = ""
        self._on_error = _OnError(self._note)  # kept: librdkafka calls it as long as the client lives
        _conf_set_error_cb(conf, ctypes.cast(self._on_error, c_void_p))
        self._handle = _new(CONSUMER, conf, words, len(words))
        if not self._handle:
            _conf_destroy(conf)
            raise LibraryError(f"Kafka client: {words.value.decode()}; correct FRAUD_KAFKA")
        self._topics: dict[str, int] = {}

    def _note(self, _handle: int, _code: int, reason: bytes, _nothing: int) -> None:
        self._last = f" ({reason.decode(errors='replace')})"

    def trouble(self) -> str:
        """What the client has said of the brokers since the range was begun, in brackets; or nothing."""
        _poll(self._handle, NO_WAIT)
        return self._last

    @contextmanager
    def fetching(self, topic: str, partition: int, start: int) -> Iterator[Queue]:
        """Fetch a partition from an offset on, into a queue of its own."""
        self.trouble()
        self._last = ""
        if topic not in self._topics:
            handle = _topic_new(self._handle, topic.encode(), None)
            if not handle:
                raise LibraryError(f"{topic} cannot be read: {KafkaError(_last_error()).str()}")
            self._topics[topic] = handle
        queue = _queue_new(self._handle)
        try:
            if _start(self._topics[topic], partition, start, queue) != 0:
                raise LibraryError(f"{topic}-{partition} cannot be read: {KafkaError(_last_error()).str()}")
            try:
                yield Queue(topic, partition, queue)
            finally:
                _stop(self._topics[topic], partition)
        finally:
            _queue_destroy(queue)

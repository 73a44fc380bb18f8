"""Declarations of librdkafka functions that confluent-kafka does not expose: a consumer without a group.

confluent-kafka creates a Python object for each record, which takes three times as long as fetching it, and
Spark's own Kafka source copies each record six times on its way to Python (decision 15). This module calls
the library that confluent-kafka ships; `message_kernels` reads its messages in place.
"""

import ctypes
from collections.abc import Mapping
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from pathlib import Path
from typing import Any

import confluent_kafka
import llvmlite.binding as llvm
from confluent_kafka import KafkaError

from feature_store.errors import FraudError

# struct rd_kafka_message_t, part of librdkafka's public interface since 0.8:
#   int err; rd_kafka_topic_t *rkt; int32_t partition; void *payload; size_t len; void *key; size_t key_len;
#   int64_t offset; void *_private;
WORDS = 8
"""Number of eight-byte words of a message, without `_private`."""
ERROR, TOPIC, PARTITION, PAYLOAD, SIZE, KEY, KEY_SIZE, OFFSET = range(WORDS)
"""Indices of a message's words; ERROR and PARTITION use only the low four bytes."""
END_OF_PARTITION = KafkaError._PARTITION_EOF

CONSUMER = 1
NO_WAIT = 0
SUPPORTED = 2
"""Major version of librdkafka to which these declarations belong."""


class LibraryError(FraudError):
    """librdkafka is missing, is not version 2, or refuses a setting, a topic or a partition.

    Install confluent-kafka from its wheel; correct `FRAUD_KAFKA`.
    """


def _find() -> str:
    package = Path(confluent_kafka.__file__).parent
    directories = (package.parent / "confluent_kafka.libs", package / ".dylibs")
    libraries = [str(path) for directory in directories for path in directory.glob("librdkafka*")]
    if not libraries:
        raise LibraryError("confluent-kafka is installed without its librdkafka; install it from its wheel")
    return libraries[0]


_LIBRARY = _find()
llvm.load_library_permanently(_LIBRARY)  # for the kernels, whose calls are bound by name
_LIB = ctypes.CDLL(_LIBRARY)


def _declare(name: str, result: Any, *arguments: Any) -> Any:
    function = _LIB[name]
    function.restype, function.argtypes = result, arguments
    return function


_version = _declare("rd_kafka_version", c_int)
_conf_new = _declare("rd_kafka_conf_new", c_void_p)
_conf_set = _declare("rd_kafka_conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
_conf_set_error_cb = _declare("rd_kafka_conf_set_error_cb", None, c_void_p, c_void_p)
_conf_destroy = _declare("rd_kafka_conf_destroy", None, c_void_p)
_new = _declare("rd_kafka_new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
_destroy = _declare("rd_kafka_destroy", None, c_void_p)
_poll = _declare("rd_kafka_poll", c_int, c_void_p, c_int)
_topic_new = _declare("rd_kafka_topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
_topic_name = _declare("rd_kafka_topic_name", c_char_p, c_void_p)
_topic_destroy = _declare("rd_kafka_topic_destroy", None, c_void_p)
_queue_new = _declare("rd_kafka_queue_new", c_void_p, c_void_p)
_queue_destroy = _declare("rd_kafka_queue_destroy", None, c_void_p)
_start = _declare("rd_kafka_consume_start_queue", c_int, c_void_p, c_int32, c_int64, c_void_p)
_stop = _declare("rd_kafka_consume_stop", c_int, c_void_p, c_int32)
_last_error = _declare("rd_kafka_last_error", c_int)
consume_batch = _declare("rd_kafka_consume_batch_queue", c_ssize_t, c_void_p, c_int, c_void_p, c_size_t)
"""Function (queue, timeout ms, address of an array of pointers, its size) -> number of messages.

The result is -1 after an error. Returns before the timeout only if the array is full."""

if _version() >> 24 != SUPPORTED:
    raise LibraryError(
        f"librdkafka {confluent_kafka.libversion()[0]} is not 2.x; install the locked confluent-kafka"
    )

_OnError = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)


def _release_free_memory() -> None:
    """Return to the system the memory that librdkafka's threads have freed; otherwise glibc keeps it."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def error_of(message: int) -> KafkaError:
    """Return the error that a message in a queue reports instead of a record.

    Args:
        message: address of the message.
    """
    words = (c_int64 * WORDS).from_address(message)
    text = ctypes.string_at(words[PAYLOAD], words[SIZE]) if words[PAYLOAD] else b""
    return KafkaError(c_int32(words[ERROR]).value, text.decode(errors="replace") or None)


def partition_of(message: int) -> tuple[str, int] | None:
    """Return topic and partition of a message in a queue; None if it has none.

    Args:
        message: address of the message.
    """
    words = (c_int64 * WORDS).from_address(message)
    if not words[TOPIC]:
        return None
    return _topic_name(words[TOPIC]).decode(), c_int32(words[PARTITION]).value


class Client:
    """A consumer without a group, with one queue for all records that it fetches; not thread-safe.

    What librdkafka refuses raises LibraryError.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Create the client; it connects when it is used."""
        self._handle: int | None = None
        error_text = ctypes.create_string_buffer(512)
        conf = _conf_new()
        for name, value in settings.items():
            if _conf_set(conf, name.encode(), value.encode(), error_text, len(error_text)) != 0:
                _conf_destroy(conf)
                raise LibraryError(f"Kafka client settings: {error_text.value.decode()}; correct FRAUD_KAFKA")
        self.trouble = ""
        """Text of the client's last error; the owner resets it."""
        self._on_error = _OnError(self._note)  # kept alive: librdkafka calls it as long as the client lives
        _conf_set_error_cb(conf, ctypes.cast(self._on_error, c_void_p))
        self._handle = _new(CONSUMER, conf, error_text, len(error_text))
        if not self._handle:
            _conf_destroy(conf)
            raise LibraryError(f"Kafka client: {error_text.value.decode()}; correct FRAUD_KAFKA")
        self._topics: dict[str, int] = {}
        self._started: set[tuple[str, int]] = set()
        self.queue: int = _queue_new(self._handle)
        """Handle of the queue."""

    def _note(self, _handle: int, _code: int, reason: bytes, _opaque: int) -> None:
        self.trouble = reason.decode(errors="replace")

    def listen(self) -> None:
        """Serve the client's error callback, which sets `trouble`; takes about a microsecond."""
        _poll(self._handle, NO_WAIT)

    def topic(self, name: str) -> int:
        """Return the topic's handle, which is word TOPIC of its messages."""
        if name not in self._topics:
            handle = _topic_new(self._handle, name.encode(), None)
            if not handle:
                raise LibraryError(f"{name} cannot be read: {KafkaError(_last_error()).str()}")
            self._topics[name] = handle
        return self._topics[name]

    def start(self, topic: str, partition: int, offset: int) -> None:
        """Start to fetch a partition, which is not started yet, from an offset on, into the queue."""
        if _start(self.topic(topic), partition, offset, self.queue) != 0:
            raise LibraryError(f"{topic}-{partition} cannot be read: {KafkaError(_last_error()).str()}")
        self._started.add((topic, partition))

    def stop(self, topic: str, partition: int) -> None:
        """Stop fetching a partition; librdkafka drops its messages that are still in the queue."""
        if (topic, partition) in self._started:
            self._started.discard((topic, partition))
            _stop(self._topics[topic], partition)

    def close(self) -> None:
        """End the client's threads and free its memory. All messages must have been destroyed before."""
        if self._handle is None:
            return
        for topic, partition in tuple(self._started):
            self.stop(topic, partition)
        _queue_destroy(self.queue)
        for handle in self._topics.values():
            _topic_destroy(handle)
        _destroy(self._handle)
        self._handle = None
        _release_free_memory()

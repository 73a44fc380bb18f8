"""librdkafka's consumer without a group, called directly: what confluent-kafka does not expose.

confluent-kafka makes a Python object of each record, which costs three times what fetching it does, and
Spark's own Kafka source copies each record six times on its way to Python (decision 15). This declares the
functions of the library that confluent-kafka brings with it; `message_kernels` reads its messages in place.
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
"""Eight-byte words of a message, less the private one."""
ERROR, TOPIC, PARTITION, PAYLOAD, SIZE, KEY, KEY_SIZE, OFFSET = range(WORDS)
"""Words of it; of ERROR and PARTITION only the low four bytes count."""
END_OF_PARTITION = KafkaError._PARTITION_EOF

CONSUMER = 1
NO_WAIT = 0
SUPPORTED = 2
"""Major version of librdkafka that these declarations are of."""


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


_version = _declared("rd_kafka_version", c_int)
_conf_new = _declared("rd_kafka_conf_new", c_void_p)
_conf_set = _declared("rd_kafka_conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
_conf_set_error_cb = _declared("rd_kafka_conf_set_error_cb", None, c_void_p, c_void_p)
_conf_destroy = _declared("rd_kafka_conf_destroy", None, c_void_p)
_new = _declared("rd_kafka_new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
_destroy = _declared("rd_kafka_destroy", None, c_void_p)
_poll = _declared("rd_kafka_poll", c_int, c_void_p, c_int)
_topic_new = _declared("rd_kafka_topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
_topic_name = _declared("rd_kafka_topic_name", c_char_p, c_void_p)
_topic_destroy = _declared("rd_kafka_topic_destroy", None, c_void_p)
_queue_new = _declared("rd_kafka_queue_new", c_void_p, c_void_p)
_queue_destroy = _declared("rd_kafka_queue_destroy", None, c_void_p)
_start = _declared("rd_kafka_consume_start_queue", c_int, c_void_p, c_int32, c_int64, c_void_p)
_stop = _declared("rd_kafka_consume_stop", c_int, c_void_p, c_int32)
_last_error = _declared("rd_kafka_last_error", c_int)
consume_batch = _declared("rd_kafka_consume_batch_queue", c_ssize_t, c_void_p, c_int, c_void_p, c_size_t)
"""(queue, timeout ms, address of pointers, room for so many) -> messages taken, or -1.

Returns before the timeout only with as many messages as there is room for."""

if _version() >> 24 != SUPPORTED:
    raise LibraryError(
        f"librdkafka {confluent_kafka.libversion()[0]} is not 2.x; install the locked confluent-kafka"
    )

_OnError = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)


def _give_back_free_memory() -> None:
    """Have the C library return what librdkafka's threads have freed; glibc keeps it otherwise."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def error_of(message: int) -> KafkaError:
    """What an error message in a queue says.

    Args:
        message: its address.
    """
    words = (c_int64 * WORDS).from_address(message)
    text = ctypes.string_at(words[PAYLOAD], words[SIZE]) if words[PAYLOAD] else b""
    return KafkaError(c_int32(words[ERROR]).value, text.decode(errors="replace") or None)


def place_of(message: int) -> tuple[str, int] | None:
    """Topic and partition that a message in a queue is about; None if it is about none.

    Args:
        message: its address.
    """
    words = (c_int64 * WORDS).from_address(message)
    if not words[TOPIC]:
        return None
    return _topic_name(words[TOPIC]).decode(), c_int32(words[PARTITION]).value


class Client:
    """One consumer without a group, and one queue for all that it fetches. For one thread at a time."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Make it; it connects when it is used.

        Args:
            settings: librdkafka's names.

        Raises:
            LibraryError: it does not take them.
        """
        self._handle: int | None = None
        words = ctypes.create_string_buffer(512)
        conf = _conf_new()
        for name, value in settings.items():
            if _conf_set(conf, name.encode(), value.encode(), words, len(words)) != 0:
                _conf_destroy(conf)
                raise LibraryError(f"Kafka client settings: {words.value.decode()}; correct FRAUD_KAFKA")
        self.trouble = ""
        """What went wrong last, in the client's words; the owner empties it."""
        self._on_error = _OnError(self._note)  # kept: librdkafka calls it as long as the client lives
        _conf_set_error_cb(conf, ctypes.cast(self._on_error, c_void_p))
        self._handle = _new(CONSUMER, conf, words, len(words))
        if not self._handle:
            _conf_destroy(conf)
            raise LibraryError(f"Kafka client: {words.value.decode()}; correct FRAUD_KAFKA")
        self._topics: dict[str, int] = {}
        self._started: set[tuple[str, int]] = set()
        self.queue: int = _queue_new(self._handle)
        """Handle of the queue."""

    def _note(self, _handle: int, _code: int, reason: bytes, _nothing: int) -> None:
        self.trouble = reason.decode(errors="replace")

    def listen(self) -> None:
        """Take in what the client says of the brokers (`trouble`); costs about a microsecond."""
        _poll(self._handle, NO_WAIT)

    def topic(self, name: str) -> int:
        """The topic's handle, which is word TOPIC of its messages."""
        if name not in self._topics:
            handle = _topic_new(self._handle, name.encode(), None)
            if not handle:
                raise LibraryError(f"{name} cannot be read: {KafkaError(_last_error()).str()}")
            self._topics[name] = handle
        return self._topics[name]

    def start(self, topic: str, partition: int, offset: int) -> None:
        """Fetch a partition from an offset on, into the queue.

        Raises:
            LibraryError: it cannot be, or is being fetched.
        """
        if _start(self.topic(topic), partition, offset, self.queue) != 0:
            raise LibraryError(f"{topic}-{partition} cannot be read: {KafkaError(_last_error()).str()}")
        self._started.add((topic, partition))

    def stop(self, topic: str, partition: int) -> None:
        """Fetch it no more; what the queue holds of it is dropped on the way out."""
        if (topic, partition) in self._started:
            self._started.discard((topic, partition))
            _stop(self._topics[topic], partition)

    def close(self) -> None:
        """End the client's threads and free what it holds. Messages must have been given back before."""
        if self._handle is None:
            return
        for topic, partition in tuple(self._started):
            self.stop(topic, partition)
        _queue_destroy(self.queue)
        for handle in self._topics.values():
            _topic_destroy(handle)
        _destroy(self._handle)
        self._handle = None
        _give_back_free_memory()

"""Kernels that read the headers of librdkafka's messages in place."""

from typing import Any

import numba
import numpy as np

from feature_store.jit import njit

# mypy cannot type numba's internals
types: Any = numba.types
_word = types.int64
_headers_of = types.ExternalFunction("rd_kafka_message_headers", types.int32(_word, _word))
_header = types.ExternalFunction("rd_kafka_header_get_all", types.int32(_word, _word, _word, _word, _word))
_strlen = types.ExternalFunction("strlen", _word(_word))
_memcpy = types.ExternalFunction("memcpy", _word(_word, _word, _word))
_LIST, _NAME, _VALUE, _SIZE = 0, 8, 16, 24
"""Positions of the words that librdkafka fills, in bytes."""


@njit(cache=True)
def locate(states, topic, messages, count, owners, located):  # type: ignore[no-untyped-def]
    """Write the address of each of a topic's records to its row, as `message_kernels.copy` orders them."""
    next_row, row = np.zeros(states.size, dtype=np.int64), 0
    for i in range(states.size):
        if states[i].topic_number == topic:
            next_row[i] = row
            row += states[i].rows
    for i in range(count):
        if owners[i] >= 0 and states[owners[i]].topic_number == topic:
            located[next_row[owners[i]]] = messages[i]
            next_row[owners[i]] += 1


@njit(cache=True, nogil=True)
def measure(located, ends):  # type: ignore[no-untyped-def]
    """Return the number of headers of n messages, and the bytes of their names and of their values.

    `ends`, shape (n + 1,), gets the number of headers up to each message.
    """
    words = np.zeros(4, dtype=np.int64)
    at = words.ctypes.data
    names, values, total = 0, 0, 0
    ends[0] = 0
    for row in range(located.size):
        if _headers_of(located[row], at + _LIST) == 0:
            i = 0
            while _header(words[0], i, at + _NAME, at + _VALUE, at + _SIZE) == 0:
                names += _strlen(words[1])
                values += words[3]
                i += 1
            total += i
        ends[row + 1] = total
    return total, names, values


@njit(cache=True, nogil=True)
def copy(located, names, name_ends, values, value_ends, present):  # type: ignore[no-untyped-def]
    """Copy the headers that `measure` has counted; return the number of null values."""
    words = np.zeros(4, dtype=np.int64)
    at = words.ctypes.data
    header, name_at, value_at, nulls = 0, 0, 0, 0
    name_ends[0], value_ends[0] = 0, 0
    for row in range(located.size):
        if _headers_of(located[row], at + _LIST) != 0:
            continue
        i = 0
        while _header(words[0], i, at + _NAME, at + _VALUE, at + _SIZE) == 0:
            length = _strlen(words[1])
            _memcpy(names.ctypes.data + name_at, words[1], length)
            _memcpy(values.ctypes.data + value_at, words[2], words[3])
            name_at += length
            value_at += words[3]
            present[header] = words[2] != 0
            nulls += words[2] == 0
            name_ends[header + 1], value_ends[header + 1] = name_at, value_at
            header += 1
            i += 1
    return nulls

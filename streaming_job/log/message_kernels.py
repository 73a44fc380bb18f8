"""Kernels that read librdkafka's messages, of several partitions and topics, in place."""

from typing import Any

import numba
import numpy as np
from numba.core import cgutils
from numba.extending import intrinsic

from feature_store.jit import njit
from streaming_job.log.ffi import (
    END_OF_PARTITION,
    ERROR,
    KEY,
    KEY_SIZE,
    OFFSET,
    PARTITION,
    PAYLOAD,
    SIZE,
    TOPIC,
    WORDS,
)

NO_LIMIT = np.iinfo(np.int64).max
MOST_BYTES = 1 << 30
"""Maximum bytes of keys and values returned together: Arrow's offsets reach to 2 GiB, and librdkafka may
unpack a small compressed batch into more at once. A single record always fits: it has less than 1 GB."""
BY_BROKER = 2
"""librdkafka's RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME: the broker has set the timestamp."""
UNUSED, FAILED = -1, -2
"""Values in place of the row of a message's partition: the message is not returned (UNUSED), or is an error,
which the follower handles (FAILED)."""
PARTITION_STATE = np.dtype(
    [
        ("topic", np.int64),  # librdkafka's handle
        ("position", np.int64),  # next offset: beyond the records, markers and aborted records read
        ("limit", np.int64),  # first offset that must not be returned
        ("rows", np.int64),  # records in this batch; the next two are their bytes
        ("key_bytes", np.int64),
        ("value_bytes", np.int64),
        ("partition", np.int32),
        ("topic_number", np.int32),  # in the order of names
        ("is_cut", np.bool_),  # a record was left out, or an error read: none is returned until a restart
        ("is_heard", np.bool_),  # a record or the partition's end was read; the owner resets it
    ]
)
"""One row for each partition, sorted by topic's name and partition."""

# mypy cannot type numba's internals
types: Any = numba.types
_carray: Any = numba.carray  # type: ignore[attr-defined]
_timestamp = types.ExternalFunction("rd_kafka_message_timestamp", types.int64(types.int64, types.int64))
_destroy = types.ExternalFunction("rd_kafka_message_destroy", types.void(types.int64))
_memcpy = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))


def _to_pointer(_context, address):  # type: ignore[no-untyped-def]
    """Convert an address to a pointer, inside a kernel."""

    def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = intrinsic(_to_pointer)


@njit(inline="always")
def _message(address):  # type: ignore[no-untyped-def]
    return _carray(_pointer(address), (WORDS,), np.int64)


@njit(cache=True)
def _find(states, message, last):  # type: ignore[no-untyped-def]
    """Return the row of the message's partition, UNUSED without one.

    `last` is the row of the previous message's partition, likely the same.
    """
    topic, partition = message[TOPIC], np.int32(message[PARTITION])
    if last >= 0 and states[last].topic == topic and states[last].partition == partition:
        return last
    for i in range(states.size):
        if states[i].topic == topic and states[i].partition == partition:
            return i
    return UNUSED


@njit(cache=True, nogil=True)
def measure(states, messages, begin, end, owners, totals, taken, most):  # type: ignore[no-untyped-def]
    """Measure messages[begin:end]; return the numbers of records and bytes, and if an error or cut occurred.

    `owners` gets the row of each message's partition, or UNUSED or FAILED. `totals`, shape (topics, 3), is
    increased by the records, bytes of keys and bytes of values of each topic. `taken` is the number of bytes
    measured before. A record that would raise the bytes above `most` is left out, and its partition is cut
    there; but the batch's first record is returned however large it is.
    """
    records, size, is_troubled, last = 0, 0, False, UNUSED
    for i in range(begin, end):
        message = _message(messages[i])
        error, offset = np.int32(message[ERROR]), message[OFFSET]
        last = _find(states, message, last)
        owners[i] = UNUSED
        if last == UNUSED:
            if error != 0 and error != END_OF_PARTITION:
                owners[i], is_troubled = FAILED, True
            continue
        state = states[last]
        if state.is_cut:
            continue
        if error != 0 and error != END_OF_PARTITION:
            # after an error the next message may not be the partition's next record
            owners[i], state.is_cut, is_troubled = FAILED, True, True
            continue
        state.is_heard = True
        if error == END_OF_PARTITION or offset >= state.limit:
            # transaction markers and aborted records have no messages; those before this offset are passed
            state.position = max(state.position, min(offset, state.limit))
            if error == 0 or offset > state.limit:
                state.is_cut, is_troubled = True, True
        elif offset >= state.position:
            if taken + size > 0 and taken + size + message[KEY_SIZE] + message[SIZE] > most:
                state.is_cut, is_troubled = True, True
                continue
            owners[i] = last
            state.position = offset + 1
            state.rows += 1
            state.key_bytes += message[KEY_SIZE]
            state.value_bytes += message[SIZE]
            total = totals[state.topic_number]
            total[0] += 1
            total[1] += message[KEY_SIZE]
            total[2] += message[SIZE]
            records += 1
            size += message[KEY_SIZE] + message[SIZE]
    return records, size, is_troubled


@njit(cache=True, nogil=True)
def copy(  # type: ignore[no-untyped-def]
    states,
    topic,
    messages,
    count,
    owners,
    partitions,
    offsets,
    times,
    clock,
    keys,
    key_ends,
    keyed,
    values,
    ends,
    present,
):
    """Copy one topic's records and destroy their messages.

    Each message's type of timestamp lies in a cache line of its own, so only the first of successive messages
    of a partition is looked at; `clock`, shape (1,) int32, is room for its type.

    Returns:
        The numbers of null keys and values, and the row of a record whose timestamp the broker has not set
        (-1: none was seen).
    """
    # row, key offset and value offset of each partition's next record
    next_at = np.zeros((states.size, 3), dtype=np.int64)
    row, key_at, value_at = 0, 0, 0
    for i in range(states.size):
        if states[i].topic_number == topic:
            next_at[i, 0], next_at[i, 1], next_at[i, 2] = row, key_at, value_at
            row += states[i].rows
            key_at += states[i].key_bytes
            value_at += states[i].value_bytes
    null_keys, null_values, foreign, last = 0, 0, UNUSED, UNUSED
    key_ends[0], ends[0] = 0, 0
    for i in range(count):
        if owners[i] < 0 or states[owners[i]].topic_number != topic:
            continue
        at, message = next_at[owners[i]], _message(messages[i])
        row = at[0]
        partitions[row] = states[owners[i]].partition
        offsets[row] = message[OFFSET]
        if owners[i] == last:
            times[row] = _timestamp(messages[i], 0)
        else:
            last = owners[i]
            times[row] = _timestamp(messages[i], clock.ctypes.data)
            if clock[0] != BY_BROKER and foreign < 0:
                foreign = row
        _memcpy(keys.ctypes.data + at[1], message[KEY], message[KEY_SIZE])
        _memcpy(values.ctypes.data + at[2], message[PAYLOAD], message[SIZE])
        keyed[row], present[row] = message[KEY] != 0, message[PAYLOAD] != 0
        null_keys += message[KEY] == 0
        null_values += message[PAYLOAD] == 0
        at[0] += 1
        at[1] += message[KEY_SIZE]
        at[2] += message[SIZE]
        key_ends[row + 1], ends[row + 1] = at[1], at[2]
        _destroy(messages[i])
    return null_keys, null_values, foreign


@njit(cache=True, nogil=True)
def destroy_unused(states, messages, count, owners, totals):  # type: ignore[no-untyped-def]
    """Destroy the messages that `copy` has not destroyed, and begin a new batch."""
    for i in range(count):
        if owners[i] < 0:
            _destroy(messages[i])
    for i in range(states.size):
        states[i].rows, states[i].key_bytes, states[i].value_bytes = 0, 0, 0
    totals[:] = 0

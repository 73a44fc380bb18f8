"""Kernels that select profile records by their keys, before the values are decoded.

Each key group reads the whole profile topic and keeps the records of its own cards. Dropping the rest must be
cheap: one kernel reads the keys, and another searches the values of the dropped records for the mark of a
snapshot's last row, because every group has to know when a snapshot ended.

A plain key is an object whose only field is the card id: {"card_id":"..."}, with or without white space
between the tokens; the id has neither escapes nor control characters. Debezium writes plain keys if its
converter writes no schemas.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.jit import njit
from streaming_job.decode import columns
from streaming_job.decode.grammar import Bytes, blank, byte_at

MARKS = (b'"last"', b'"last_i')
"""Bytes of which one is in the value of every record that ends a snapshot. Other values may contain them,
too, so `snapshots.ends_snapshot` checks the field."""
_LAST, _QUOTE, _LINE, _I = MARKS[0], *b'"_i'
_NAME = np.frombuffer(b'"card_id"', dtype=np.uint8)


@njit(cache=True)
def _find_card(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return where the card id and the quotation mark after it are; (0, 0) if the key is not plain."""
    at = blank(data, at, end)
    if byte_at(data, at, end) != 0x7B:
        return 0, 0
    at = blank(data, at + 1, end)
    if at + _NAME.size > end:
        return 0, 0
    for i in range(_NAME.size):
        if data[at + i] != _NAME[i]:
            return 0, 0
    at = blank(data, at + _NAME.size, end)
    if byte_at(data, at, end) != 0x3A:
        return 0, 0
    at = blank(data, at + 1, end)
    if byte_at(data, at, end) != 0x22:
        return 0, 0
    start = at + 1
    close = start
    while close < end and data[close] != 0x22:
        if data[close] < 0x20 or data[close] == 0x5C:
            return 0, 0
        close += 1
    if close == end:
        return 0, 0
    at = blank(data, close + 1, end)
    if byte_at(data, at, end) != 0x7D or blank(data, at + 1, end) != end:
        return 0, 0
    return start, close


@njit(cache=True, nogil=True)
def _copy_cards(
    data: Bytes,
    offsets: NDArray[np.int32],
    present: NDArray[np.bool_],
    plain: np.ndarray,
    card_ids: Bytes,
    card_offsets: NDArray[np.int32],
) -> None:
    to = 0
    card_offsets[0] = 0
    for row in range(present.size):
        start, close = _find_card(data, offsets[row], offsets[row + 1]) if present[row] else (0, 0)
        plain[row] = close > 0
        for at in range(start, close):
            card_ids[to] = data[at]
            to += 1
        card_offsets[row + 1] = to


def cards(keys: pa.BinaryArray) -> tuple[NDArray[np.bool_], pa.BinaryArray]:
    """Return the card ids of plain keys.

    Args:
        keys: n rows.

    Returns:
        Whether each key is plain, shape (n,), and the card_id of each, n rows; the rows of keys that are not
        plain are undefined, but not null.
    """
    data, offsets = columns.buffers(keys)
    plain = np.empty(len(keys), dtype=np.bool_)
    card_ids = np.empty(offsets[-1] - offsets[0], dtype=np.uint8)
    card_offsets = np.empty(len(keys) + 1, dtype=np.int32)
    _copy_cards(data, offsets, columns.present(keys), plain, card_ids, card_offsets)
    return plain, columns.column(card_ids, card_offsets)


def card(key: bytes | None) -> bytes | None:
    """Return the bytes of a plain key's card_id, not checked to be UTF-8; None if the key is not plain."""
    data = np.frombuffer(key or b"", dtype=np.uint8)
    start, close = _find_card(data, 0, data.size)
    return data[start:close].tobytes() if close else None


@njit(cache=True, nogil=True)
def _find_last(
    data: Bytes, offsets: NDArray[np.int32], selected: NDArray[np.bool_], matches: np.ndarray
) -> None:
    for row in range(selected.size):
        hit = False
        if selected[row]:
            value = data[offsets[row] : offsets[row + 1]]
            # no early exit: the loop becomes vector instructions
            for at in range(value.size - len(_LAST)):
                hit |= (
                    (value[at] == _LAST[0])
                    & (value[at + 1] == _LAST[1])
                    & (value[at + 2] == _LAST[2])
                    & (value[at + 3] == _LAST[3])
                    & (value[at + 4] == _LAST[4])
                    & ((value[at + 5] == _QUOTE) | ((value[at + 5] == _LINE) & (value[at + 6] == _I)))
                )
        matches[row] = hit


def may_end_snapshot(values: pa.BinaryArray, selected: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of the values contain one of MARKS, followed by any byte, shape (n,).

    Args:
        values: n rows.
        selected: which rows to search, shape (n,); False is returned for the others.
    """
    data, offsets = columns.buffers(values)
    matches = np.empty(selected.size, dtype=np.bool_)
    _find_last(data, offsets, selected, matches)
    return matches

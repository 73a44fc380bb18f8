"""Kernel that lays records out for one call of a JSON parser, and looks at every byte once.

Records are joined by newlines. That keeps one record one row if each starts with { and ends with }: a raw
newline inside a string is refused by the parser, and after } a { is refused inside an object, so each record
ends at depth 0 (without newlines `{"a":"}` + `{"}` would parse as one row).
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.jit import njit

UNFRAMED = 1
"""Empty, too long, or not from { to }."""
ESCAPED = 2
"""Holds a backslash: a string may hold what its bytes do not show."""
NOT_ASCII = 4
CONSTANT = 8
"""May hold NaN or Infinity as a value, which the parser takes and JSON does not know."""
BEYOND = 16
"""May be nested deeper, or hold a longer integer, than a record may; the parser has no such limits."""


@njit(cache=True, nogil=True)
def _beyond(record: NDArray[np.uint8], nesting: int, digits: int) -> bool:
    """Whether a record holds more opening brackets than `nesting`, or more than `digits` digits in a row."""
    opened = run = 0
    for byte in record:
        opened += byte == 0x7B or byte == 0x5B  # { [
        run = run + 1 if 0x30 <= byte <= 0x39 else 0
        if run > digits:
            return True
    return opened > nesting


@njit(cache=True, nogil=True)
def frame(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    present: NDArray[np.bool_],
    longest: int,
    nesting: int,
    digits: int,
    joined: NDArray[np.uint8],
    marks: NDArray[np.uint8],
) -> int:
    """Copy records into `joined`, a newline after each; unframed ones are left out.

    Args:
        data: bytes of all records.
        offsets: record i is data[offsets[i]:offsets[i + 1]], shape (n + 1,).
        present: whether record i is not null, shape (n,).
        longest: longer records are unframed.
        nesting: records that may be nested deeper are beyond.
        digits: records that may hold longer integers are beyond; not less than `nesting`.
        joined: out, at least data plus n bytes.
        marks: out, bits of the constants above for each record, shape (n,).

    Returns:
        How many bytes of `joined` were written.
    """
    at = 0
    for row in range(marks.size):
        start, end = offsets[row], offsets[row + 1]
        framed = (
            present[row]
            and 2 <= end - start <= longest
            and data[start] == 0x7B  # {
            and data[end - 1] == 0x7D  # }
        )
        if not framed:
            marks[row] = UNFRAMED
            continue
        high = np.uint8(0)
        escaped = False
        constant = False
        for i in range(start, end):
            byte = data[i]
            joined[at + i - start] = byte
            high |= byte
            escaped |= byte == 0x5C  # backslash
            if byte == 0x4E or byte == 0x49:  # N or I where a value can start: after : , [ - or space
                before = data[i - 1]
                constant |= before <= 0x20 or before == 0x3A or before in (0x2C, 0x5B, 0x2D)
        at += end - start
        joined[at] = 0x0A
        at += 1
        # only long records can be; most are spared the second look
        beyond = end - start > 2 * nesting and _beyond(data[start:end], nesting, digits)
        marks[row] = (
            (ESCAPED if escaped else 0)
            | (NOT_ASCII if high >= 0x80 else 0)
            | (CONSTANT if constant else 0)
            | (BEYOND if beyond else 0)
        )
    return at

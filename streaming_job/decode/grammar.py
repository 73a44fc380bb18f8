"""Kernels that scan JSON (RFC 8259) in bytes: they find the end of a string, a number or any value.

Strings must be UTF-8. A position of -1 means: malformed, or beyond DEEPEST or LONGEST_NUMBER. Then the module
`strict` has to decide.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.jit import njit

DEEPEST = 60
"""Deepest nesting that the kernels follow: one bit of a word for each level."""
LONGEST_NUMBER = 300
"""Longest number that the kernels accept, in characters."""

# kinds of strings, flags
PLAIN, BEYOND_ASCII, ESCAPED = 0, 1, 2

Bytes = NDArray[np.uint8]


@njit(cache=True, inline="always")
def byte_at(data: Bytes, at: int, end: int) -> np.int64:
    """Return the byte at a position; behind the end 0, which never occurs in JSON."""
    return np.int64(data[at]) if at < end else np.int64(0)


@njit(cache=True, inline="always")
def blank(data: Bytes, at: int, end: int) -> int:
    """Return the first position from `at` on that is not white space."""
    while at < end and (data[at] == 0x20 or data[at] == 0x0A or data[at] == 0x0D or data[at] == 0x09):
        at += 1
    return at


@njit(cache=True)
def _multibyte(data: Bytes, at: int, end: int) -> int:
    """Return the position after a UTF-8 character of two to four bytes, or -1 (RFC 3629, section 4)."""
    first = data[at]
    if 0xC2 <= first <= 0xDF:
        more = 1
    elif 0xE0 <= first <= 0xEF:
        more = 2
    elif 0xF0 <= first <= 0xF4:
        more = 3
    else:
        return -1
    if at + more >= end:
        return -1
    for i in range(1, more + 1):
        if data[at + i] & 0xC0 != 0x80:
            return -1
    second = data[at + 1]
    if (
        (first == 0xE0 and second < 0xA0)  # overlong
        or (first == 0xED and second > 0x9F)  # half a surrogate pair
        or (first == 0xF0 and second < 0x90)  # overlong
        or (first == 0xF4 and second > 0x8F)  # beyond U+10FFFF
    ):
        return -1
    return at + more + 1


@njit(cache=True)
def _escape(data: Bytes, at: int, end: int) -> int:
    """Return the position after the escape that begins with the backslash at `at`, or -1."""
    sign = byte_at(data, at + 1, end)
    if sign == 0x75:  # u
        if at + 6 > end:
            return -1
        for i in range(at + 2, at + 6):
            digit = data[i]
            if not (0x30 <= digit <= 0x39 or 0x41 <= digit <= 0x46 or 0x61 <= digit <= 0x66):
                return -1
        return at + 6
    if sign in (0x22, 0x5C, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74):  # " \ / b f n r t
        return at + 2
    return -1


@njit(cache=True, inline="always")
def string(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the closing quote's position (-1 if malformed) and the kind; `at` is after the opening quote."""
    kind = PLAIN
    while at < end:
        byte = data[at]
        if byte == 0x22:
            return at, kind
        if 0x20 <= byte < 0x80 and byte != 0x5C:
            at += 1
        elif byte >= 0x80:
            kind |= BEYOND_ASCII
            at = _multibyte(data, at, end)
        elif byte == 0x5C:
            kind |= ESCAPED
            at = _escape(data, at, end)
        else:
            return -1, kind
        if at < 0:
            return -1, kind
    return -1, kind


@njit(cache=True)
def digits(data: Bytes, at: int, end: int) -> int:
    """Return the first position from `at` on that is no digit."""
    while at < end and 0x30 <= data[at] <= 0x39:
        at += 1
    return at


@njit(cache=True)
def _number(data: Bytes, at: int, end: int) -> int:
    """Return the position after a number, or -1."""
    start = at
    if byte_at(data, at, end) == 0x2D:  # -
        at += 1
    first = at
    at = digits(data, at, end)
    if at == first or (data[first] == 0x30 and at > first + 1):
        return -1
    if byte_at(data, at, end) == 0x2E:  # .
        first = at + 1
        at = digits(data, first, end)
        if at == first:
            return -1
    if byte_at(data, at, end) | 0x20 == 0x65:  # e E
        at += 1
        if byte_at(data, at, end) == 0x2B or byte_at(data, at, end) == 0x2D:  # + -
            at += 1
        first = at
        at = digits(data, first, end)
        if at == first:
            return -1
    return at if at - start <= LONGEST_NUMBER else -1


@njit(cache=True)
def _literal(data: Bytes, at: int, end: int) -> int:
    """Return the position after true, false or null, or -1."""
    for word in (b"true", b"false", b"null"):
        if at + len(word) <= end:
            same = True
            for i in range(len(word)):
                same &= data[at + i] == word[i]
            if same:
                return at + len(word)
    return -1


@njit(cache=True)
def _skip_name(data: Bytes, at: int, end: int) -> int:
    """Return the position of the value after a name and its colon, or -1."""
    if byte_at(data, at, end) != 0x22:
        return -1
    at, _ = string(data, at + 1, end)
    if at < 0:
        return -1
    at = blank(data, at + 1, end)
    return blank(data, at + 1, end) if byte_at(data, at, end) == 0x3A else -1


@njit(cache=True)
def skip(data: Bytes, at: int, end: int) -> int:
    """Return the position after any value; -1 if it is malformed or exceeds DEEPEST or LONGEST_NUMBER."""
    depth = 0
    objects = np.uint64(0)  # bit 0: whether the innermost value is an object; bit 1: the one around it; ...
    while True:
        byte = byte_at(data, at, end)
        opened = False
        if byte == 0x22:
            at, _ = string(data, at + 1, end)
            at = at + 1 if at >= 0 else -1
        elif byte == 0x7B or byte == 0x5B:  # { [
            inner = blank(data, at + 1, end)
            if byte_at(data, inner, end) == byte + 2:  # } ]
                at = inner + 1
            elif depth == DEEPEST:
                return -1
            else:
                opened = True
                depth += 1
                objects = objects << np.uint64(1) | np.uint64(byte == 0x7B)
                at = _skip_name(data, inner, end) if byte == 0x7B else inner
        elif byte == 0x2D or 0x30 <= byte <= 0x39:
            at = _number(data, at, end)
        else:
            at = _literal(data, at, end)
        if at < 0:
            return -1
        while not opened:  # a value has ended, and perhaps the objects and arrays around it
            if depth == 0:
                return at
            at = blank(data, at, end)
            byte = byte_at(data, at, end)
            in_object = objects & np.uint64(1) == np.uint64(1)
            if byte == 0x2C:
                at = blank(data, at + 1, end)
                if in_object:
                    at = _skip_name(data, at, end)
                    if at < 0:
                        return -1
                break
            if byte != (0x7D if in_object else 0x5D):
                return -1
            objects >>= np.uint64(1)
            depth -= 1
            at += 1

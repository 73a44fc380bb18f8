"""Card numbers (ISO/IEC 7812) in the ids of a transaction: a rule in Python, and a kernel that is as strict.

A run is a maximal sequence of decimal digits with at most one space or hyphen between two of them. A run of
13 to 19 digits with a valid check digit (Luhn) is

- in a card_id, a card number if it is the whole id; or if first digits and length are those of a card scheme,
  and the id is no hexadecimal token of two letters or more (in which such runs occur by chance);
- in a transaction_id or merchant_id, where long decimal numbers are usual, a card number only if it has first
  digits and length of a card scheme, and also either is written in groups as on a card, the first of four
  digits, or is followed by = or ^, as on a magnetic stripe.

Full-width and other decimal digits count like ASCII digits; other spaces and dashes like the ASCII ones.
"""

import re
import unicodedata
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.jit import njit
from streaming_job.contracts import Reason
from streaming_job.decode import columns
from streaming_job.decode.grammar import Bytes
from streaming_job.decode.plain import SEPARATOR
from streaming_job.decode.strict import Rejected

SHORTEST, LONGEST = 13, 19
"""Numbers of digits."""
FIELDS = ("card_id", "transaction_id", "merchant_id")
"""The fields that are checked, in the order of a quote."""
SCHEMES = (
    (2221, 2720, (16,)), (3000, 3059, range(14, 20)), (3400, 3499, (15,)), (3528, 3589, range(16, 20)),
    (3600, 3699, range(14, 20)), (3700, 3799, (15,)), (3800, 3999, range(14, 20)), (4000, 4999, (13, 16, 19)),
    (5000, 5099, range(13, 20)), (5100, 5599, (16,)), (5600, 5899, range(13, 20)),
    (6000, 6999, range(13, 20)),
)  # fmt: skip
"""First and last value of a number's first four digits, and its possible lengths, of each card scheme."""

_RUN = re.compile(r"[0-9](?:[ -]?[0-9])*")
_GROUPS = re.compile("[0-9]{4}[ -]")
_HEXADECIMAL = re.compile(r"(?=(?:.*[a-fA-F]){2})[0-9a-fA-F-]+")
"""A token: it has two letters, so that one before a number does not hide the number."""
_FIRST = np.array([first for first, _, _ in SCHEMES])
_LAST = np.array([last for _, last, _ in SCHEMES])
_LENGTHS = np.array([sum(1 << length for length in lengths) for _, _, lengths in SCHEMES])


def holds_card_number(text: str, *, is_card_id: bool) -> bool:
    """Return whether an id holds a card number; the authoritative rule."""
    text = "".join(map(_plain, text))
    is_token = _HEXADECIMAL.fullmatch(text) is not None
    for run in _RUN.finditer(text):
        digits = re.sub("[ -]", "", run[0])
        if not SHORTEST <= len(digits) <= LONGEST or not _has_check_digit(digits):
            continue
        if is_card_id and run[0] == text:
            return True
        is_printed = _GROUPS.match(run[0]) is not None
        is_striped = run[0] == digits and text[run.end() : run.end() + 1] in ("=", "^")
        if _is_issued(digits) and not is_token and (is_card_id or is_printed or is_striped):
            return True
    return False


def _plain(character: str) -> str:
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    return {"Zs": " ", "Pd": "-"}.get(unicodedata.category(character), character)


def _has_check_digit(digits: str) -> bool:
    numbers = [int(digit) for digit in reversed(digits)]
    return (sum(numbers[::2]) + sum(sum(divmod(2 * number, 10)) for number in numbers[1::2])) % 10 == 0


def _is_issued(digits: str) -> bool:
    return any(
        first <= int(digits[:4]) <= last and len(digits) in lengths for first, last, lengths in SCHEMES
    )


def check(fields: Mapping[str, str]) -> None:
    """Refuse a transaction of which an id holds a card number.

    Args:
        fields: the ids by name (FIELDS).

    Raises:
        Rejected: reason card_number. The detail quotes no digit.
    """
    for name in FIELDS:
        if holds_card_number(fields[name], is_card_id=name == "card_id"):
            raise Rejected(
                Reason.CARD_NUMBER,
                f"{name} has the form of a card number (13 to 19 digits with a valid check digit); send a "
                "token, or, if it is a token, set FRAUD_REFUSE_CARD_NUMBERS=false",
            )


@njit(cache=True, inline="always")
def _is_digit(byte: int) -> bool:
    return 0x30 <= byte <= 0x39


@njit(cache=True)
def _run_is_card_number(text: Bytes, start: int, end: int, length: int) -> tuple[bool, bool]:
    """Return whether a run of `length` digits has a valid check digit, and whether a scheme issues such."""
    total, prefix, position = np.int64(0), np.int64(0), length
    for at in range(start, end):
        byte = text[at]
        if _is_digit(byte):
            digit = np.int64(byte) - 0x30
            position -= 1  # from the end
            total += digit if position % 2 == 0 else 2 * digit - 9 * (digit > 4)
            if length - position <= 4:
                prefix = 10 * prefix + digit
    issued = False
    for scheme in range(_FIRST.size):
        issued |= _FIRST[scheme] <= prefix <= _LAST[scheme] and (_LENGTHS[scheme] >> length) & 1 == 1
    return total % 10 == 0, issued


@njit(cache=True)
def _holds(text: Bytes, start: int, end: int, is_card_id: bool) -> bool:
    """Return what `holds_card_number` does, for ASCII that is no hexadecimal token."""
    at = start
    while at < end:
        if not _is_digit(text[at]):
            at += 1
            continue
        run, length, parted = at, 0, 0  # `parted`: digits before the first space or hyphen
        while at < end:
            if _is_digit(text[at]):
                length += 1
            elif (text[at] == 0x20 or text[at] == 0x2D) and at + 1 < end and _is_digit(text[at + 1]):
                parted = length if parted == 0 else parted
            else:
                break
            at += 1
        if length < SHORTEST or length > LONGEST:
            continue
        valid, issued = _run_is_card_number(text, run, at, length)
        if valid and is_card_id and (issued or at - run == end - start):
            return True
        striped = parted == 0 and at < end and (text[at] == 0x3D or text[at] == 0x5E)
        if valid and issued and (parted == 4 or striped):
            return True
    return False


_BITS = 12  # of a count
_COUNT = (1 << _BITS) - 1
_DIGIT, _LETTER, _HYPHEN, _MARK, _ABOVE = range(5)
_KINDS = np.zeros(256, dtype=np.int64)
"""1 in the bits of a byte's kind, so that an addition counts it: ASCII digits, letters a to f, hyphens, marks
that make a number unmistakable, and bytes beyond ASCII."""
for _kind, _bytes in (
    (_DIGIT, b"0123456789"), (_LETTER, b"abcdefABCDEF"), (_HYPHEN, b"-"), (_MARK, b" =^"),
    (_ABOVE, bytes(range(128, 256))),
):  # fmt: skip
    _KINDS[list(_bytes)] = 1 << _kind * _BITS


@njit(cache=True, inline="always")
def _count(counts: int, kind: int) -> int:
    return (counts >> kind * _BITS) & _COUNT


@njit(cache=True)
def _may_hold(text: Bytes, start: int, end: int, counts: int, is_card_id: bool) -> bool:
    """Return what `holds_card_number` does; but True if it cannot tell without Unicode's tables."""
    digits, letters, above = _count(counts, _DIGIT), _count(counts, _LETTER), _count(counts, _ABOVE)
    if digits + above < SHORTEST:
        return False
    if above:
        return True
    if letters > 1 and digits + letters + _count(counts, _HYPHEN) == end - start:
        return False
    if not is_card_id and not _count(counts, _MARK) and not _count(counts, _HYPHEN):
        return False
    return _holds(text, start, end, is_card_id)


@njit(cache=True, nogil=True)
def _find(quotes: Bytes, offsets: NDArray[np.int32], matches: NDArray[np.bool_]) -> None:
    for row in range(matches.size):
        start = at = offsets[row]
        match = False
        for field in range(len(FIELDS)):
            counts = np.int64(0)
            while at < offsets[row + 1] and quotes[at] != SEPARATOR:
                counts += _KINDS[quotes[at]]
                at += 1
            if _count(counts, _DIGIT) + _count(counts, _ABOVE) >= SHORTEST:
                match |= _may_hold(quotes, start, at, counts, field == 0)
            at += 1
            start = at
        matches[row] = match


def find(quotes: pa.BinaryArray) -> NDArray[np.bool_]:
    """Return which transactions `check` may refuse, shape (n,): all that it refuses, and few others.

    Args:
        quotes: n quotes (`transactions.quote`); no nulls.
    """
    data, offsets = columns.buffers(quotes)
    matches = np.empty(len(quotes), dtype=np.bool_)
    _find(data, offsets, matches)
    return matches

"""Stateless checks of a record; the first check that fails gives the reason of the dead letter.

Plain `json` and `if`: slow, obvious, and written independently of the job's decoder.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from loadtests.oracle.partitions import partition_of
from loadtests.oracle.records import UNITS, AcceptanceRules, Record, Transaction
from streaming_job.contracts import Reason

MAX_RECORD_BYTES = 65_536
MAX_DEPTH = 256
MAX_EVENT_TIME = 99_999_999_999_999
MAX_AMOUNT = 1e9
DECIDING = {"transaction_id", "card_id", "merchant_id", "amount", "currency", "country", "event_time"}
"""Fields that decisions depend on; all other fields may be any JSON."""
CURRENCY = re.compile("[A-Z]{3}")
COUNTRY = re.compile("[A-Z]{2}")

_FORBIDDEN_IN_IDENTIFIER = re.compile("[\x00-\x1f\ud800-\udfff]")


class RefusedError(Exception):
    """The record breaks its contract; the only argument is a `Reason`."""

    @property
    def reason(self) -> Reason:
        """The reason of the dead letter."""
        reason: Reason = self.args[0]
        return reason


class _Object(dict[str, Any]):
    """A JSON object that keeps every value of a repeated name, and remembers which names are repeated."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.written = [value for _, value in pairs]
        self.repeated: set[str] = set()
        if len(pairs) > len(self):
            names = [name for name, _ in pairs]
            self.repeated = {name for name in self if names.count(name) > 1}


_PARSER = json.JSONDecoder(object_pairs_hook=_Object)


def _depth(value: Any) -> int:
    """Return the nesting depth of objects and arrays."""
    depth, level = 0, [value]
    while level := [inner for inner in level if isinstance(inner, list | _Object)]:
        depth += 1
        level = [
            inner for outer in level for inner in (outer.written if isinstance(outer, _Object) else outer)
        ]
    return depth


def parse_object(value: bytes | None) -> _Object:
    """Parse a record's value, or refuse it with the reason of the first check that fails.

    Raises:
        RefusedError: a check failed.
    """
    if not value:
        raise RefusedError(Reason.EMPTY_VALUE)
    if len(value) > MAX_RECORD_BYTES:
        raise RefusedError(Reason.RECORD_TOO_LARGE)
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedError(Reason.INVALID_UTF8) from None
    try:
        parsed = _PARSER.decode(text)
    except (ValueError, RecursionError):
        raise RefusedError(Reason.MALFORMED_JSON) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(parsed) > MAX_DEPTH:
        raise RefusedError(Reason.MALFORMED_JSON)
    if not isinstance(parsed, _Object):
        raise RefusedError(Reason.NOT_AN_OBJECT)
    return parsed


def unfit(record: Record) -> Reason | None:
    """Return why a record of a topic whose order counts is not even read; None if it is."""
    if record.partition:
        return Reason.WRONG_PARTITION
    if not record.value:
        return Reason.EMPTY_VALUE
    return Reason.RECORD_TOO_LARGE if len(record.value) > MAX_RECORD_BYTES else None


def as_object(row: Mapping[str, Any]) -> _Object:
    """Return a parsed object of some fields, of which none is repeated."""
    return _Object([*row.items()])


def _field(row: Any, name: str) -> Any:
    if not isinstance(row, dict):
        raise RefusedError(Reason.WRONG_TYPE)
    if name not in row:
        raise RefusedError(Reason.MISSING_FIELD)
    return row[name]


def identifier(row: Any, name: str) -> str:
    """Return an identifier: 1 to 64 characters, none below U+0020, no lone surrogates."""
    value = _field(row, name)
    if type(value) is not str:
        raise RefusedError(Reason.WRONG_TYPE)
    if not 1 <= len(value) <= 64 or _FORBIDDEN_IN_IDENTIFIER.search(value):
        raise RefusedError(Reason.INVALID_VALUE)
    return value


def text(row: Any, name: str, pattern: re.Pattern[str]) -> str:
    """Return a string that matches the pattern as a whole."""
    value = _field(row, name)
    if type(value) is not str:
        raise RefusedError(Reason.WRONG_TYPE)
    if not pattern.fullmatch(value):
        raise RefusedError(Reason.INVALID_VALUE)
    return value


def amount(row: Any, name: str, most: float = MAX_AMOUNT) -> float:
    """Return a number from 0 to `most`; booleans are refused."""
    value = _field(row, name)
    if type(value) is not int and type(value) is not float:
        raise RefusedError(Reason.WRONG_TYPE)
    if type(value) is float and not math.isfinite(value):
        raise RefusedError(Reason.NON_FINITE_NUMBER)
    if value > most:
        raise RefusedError(Reason.INVALID_VALUE)
    if value < 0:
        raise RefusedError(Reason.NEGATIVE_AMOUNT)
    return float(value)


def integer(row: Any, name: str, least: int, most: int) -> int:
    """Return a number that is written as an integer: 1.0 is refused."""
    value = _field(row, name)
    if type(value) is not int:
        raise RefusedError(Reason.WRONG_TYPE)
    if not least <= value <= most:
        raise RefusedError(Reason.INVALID_VALUE)
    return value


def _ascii(text: str) -> str:
    """Return a text with ASCII digits, spaces and hyphens for all others."""
    plain = ""
    for character in text:
        if character.isdecimal():
            plain += str(int(character))
        else:
            kind = unicodedata.category(character)
            plain += " " if kind == "Zs" else "-" if kind == "Pd" else character
    return plain


def _runs(text: str) -> list[tuple[str, str]]:
    """Return each run of digits, single spaces and hyphens between them included, and what follows it."""
    parts = re.split("([0-9]+(?:[ -][0-9]+)*)", text)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def _is_number(run: str) -> bool:
    """Return whether a run is 13 to 19 digits with a valid Luhn check digit."""
    digits = run.replace(" ", "").replace("-", "")
    odd, even = digits[::-1][::2], digits[::-1][1::2]
    total = sum(map(int, odd)) + sum(sum(map(int, str(2 * int(digit)))) for digit in even)
    return 13 <= len(digits) <= 19 and total % 10 == 0


def _is_issued(run: str) -> bool:
    """Return whether a scheme has numbers that begin like a run and are as long."""
    digits = run.replace(" ", "").replace("-", "")
    length, four = len(digits), int(digits[:4])
    if four // 1000 == 4:
        return length in (13, 16, 19)
    if four // 100 in range(51, 56) or 2221 <= four <= 2720:
        return length == 16
    if four // 100 in (34, 37):
        return length == 15
    if 3000 <= four <= 3059 or four // 100 in (36, 38, 39):
        return length >= 14
    if 3528 <= four <= 3589:
        return length >= 16
    return four // 1000 == 6 or four // 100 in (50, 56, 57, 58)


def _is_hexadecimal(text: str) -> bool:
    letters = re.sub("[0-9-]", "", text)
    return len(letters) > 1 and set(letters) <= set("abcdefABCDEF")


def is_card_number(card_id: str) -> bool:
    """Return whether a card id is or holds a card number."""
    text = _ascii(card_id)
    for run, _ in _runs(text):
        if _is_number(run) and (run == text or (_is_issued(run) and not _is_hexadecimal(text))):
            return True
    return False


def shows_card_number(other_id: str) -> bool:
    """Return whether another id holds a card number as it is printed on a card, or on its stripe."""
    text = _ascii(other_id)
    return not _is_hexadecimal(text) and any(
        _is_number(run)
        and _is_issued(run)
        and (re.match("[0-9]{4}[ -]", run) or (run.isdigit() and rest.startswith(("=", "^"))))
        for run, rest in _runs(text)
    )


def read_transaction(record: Record, rules: AcceptanceRules) -> Transaction:
    """Decode and check the transaction in a record.

    Raises:
        RefusedError: the record has to become a dead letter, with the error's reason.
    """
    row = parse_object(record.value) if rules.row is None else rules.row(record)
    if row.repeated & DECIDING:
        raise RefusedError(Reason.DUPLICATE_FIELD)
    transaction_id = identifier(row, "transaction_id")
    card_id = identifier(row, "card_id")
    merchant_id = identifier(row, "merchant_id")
    units = round(amount(row, "amount") * UNITS)
    currency = text(row, "currency", CURRENCY)
    country = text(row, "country", COUNTRY)
    event_time = integer(row, "event_time", 0, MAX_EVENT_TIME)
    if rules.refuse_card_numbers and (
        is_card_number(card_id) or any(map(shows_card_number, (transaction_id, merchant_id)))
    ):
        raise RefusedError(Reason.CARD_NUMBER)
    if event_time < record.timestamp - rules.allowed_lateness_ms:
        raise RefusedError(Reason.TOO_LATE)
    if event_time > record.timestamp + rules.allowed_skew_ms:
        raise RefusedError(Reason.FUTURE_EVENT_TIME)
    if record.partition != partition_of(card_id, rules.partitions, rules.partitioner):
        raise RefusedError(Reason.WRONG_PARTITION)
    return Transaction(
        transaction_id,
        card_id,
        merchant_id,
        units,
        currency,
        country,
        event_time,
        record.timestamp,
        record.partition,
        record.offset,
    )

"""The authoritative decoder: checks one record at a time, and gives the reason of a rejection in words.

The vectorised path (`plain`) must agree with it.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from streaming_job.contracts import Reason

MAX_RECORD_BYTES = 65_536
MAX_NESTING = 256
"""Maximum depth of nested objects and arrays; fixed, because the limit of Python's json module depends on the
caller's stack."""
MAX_DIGITS = 4300
"""Maximum number of digits of an integer: Python's own limit."""
MAX_ID_CHARACTERS = 64
MAX_DETAIL = 200
"""Maximum characters of a rejection's detail, which could otherwise quote a whole record."""
MAX_AMOUNT = 1e9
MAX_TIME_MS = 99_999_999_999_999
FIELDS = ("transaction_id", "card_id", "merchant_id", "amount", "currency", "country", "event_time")
"""Fields of a transaction that decisions depend on."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKET = re.compile(r"[][{}]")
_CONTROL = re.compile(r"[\x00-\x1f\ud800-\udfff]")
_COUNTRY = re.compile(r"[A-Z]{2}", re.ASCII)
_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)


class Rejected(Exception):  # noqa: N818  a typed outcome, not an error
    """A record does not keep its contract, and becomes a dead letter."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason.value, detail)
        self.reason = reason
        self.detail = detail[:MAX_DETAIL]


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its names were repeated."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: set[str] = set()
        if len(self) != len(pairs):
            counts = Counter(name for name, _ in pairs)
            self.repeated = {name for name, count in counts.items() if count > 1}


def _nesting(text: str) -> int:
    """Return the depth of nested objects and arrays; 0 if it is certainly within MAX_NESTING."""
    if text.count("[") + text.count("{") <= MAX_NESTING:
        return 0
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def parse_object(value: bytes | None, fields: Iterable[str] = (), part: str = "value") -> dict[str, Any]:
    """Parse the JSON object in a record's value or key.

    Args:
        value: the value, or the key.
        fields: names that must not be repeated. Other names may be. The values are not checked here: they may
            be anything that Python's json module reads, up to MAX_NESTING and MAX_DIGITS.
        part: `value` or `key`, for the error's text.

    Raises:
        Rejected: with the first reason that applies, in the order of the checks below.
    """
    if not value:
        raise Rejected(Reason.EMPTY_VALUE, f"the record has no {part}")
    if len(value) > MAX_RECORD_BYTES:
        raise Rejected(Reason.RECORD_TOO_LARGE, f"{len(value)} bytes; at most {MAX_RECORD_BYTES} are allowed")
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise Rejected(Reason.INVALID_UTF8, f"invalid UTF-8 at byte {fault.start}") from None
    if _nesting(text) > MAX_NESTING:
        raise Rejected(Reason.MALFORMED_JSON, f"nested more than {MAX_NESTING} deep")
    try:
        # without the hook, which only finds repeated names, parsing takes a third of the time
        record = json.loads(text, object_pairs_hook=_Object if fields else None)
    except (ValueError, RecursionError) as fault:
        # ValueError covers JSONDecodeError and Python's limit on the digits of a number
        raise Rejected(Reason.MALFORMED_JSON, str(fault) or type(fault).__name__) from None
    if not isinstance(record, dict):
        raise Rejected(Reason.NOT_AN_OBJECT, f"the {part} is a JSON {type(record).__name__}")
    for name in fields:
        if name in record.repeated:  # type: ignore[attr-defined]
            raise Rejected(Reason.DUPLICATE_FIELD, f"field {name!r} occurs more than once")
    return record


def _field(record: dict[str, Any], name: str) -> Any:
    if name not in record:
        raise Rejected(Reason.MISSING_FIELD, f"field {name!r} is missing")
    return record[name]


def identifier(record: dict[str, Any], name: str) -> str:
    """Return a string of 1 to 64 characters without control characters or half surrogate pairs."""
    value = _field(record, name)
    if not isinstance(value, str):
        raise Rejected(Reason.WRONG_TYPE, f"{name} must be a string, not {_kind(value)}")
    if not 1 <= len(value) <= MAX_ID_CHARACTERS:
        raise Rejected(Reason.INVALID_VALUE, f"{name} has {len(value)} characters; 1 to 64 are allowed")
    if _CONTROL.search(value):
        raise Rejected(Reason.INVALID_VALUE, f"{name} holds a control character or half a surrogate pair")
    return value


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def matching(record: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    """Return a string that the pattern matches in full."""
    value = _field(record, name)
    if not isinstance(value, str):
        raise Rejected(Reason.WRONG_TYPE, f"{name} must be a string, not {_kind(value)}")
    if not pattern.fullmatch(value):
        raise Rejected(Reason.INVALID_VALUE, f"{name} must match {pattern.pattern}")
    return value


def country(record: dict[str, Any], name: str) -> str:
    """Return a string of two capital letters."""
    return matching(record, name, _COUNTRY)


def currency(record: dict[str, Any], name: str) -> str:
    """Return a string of three capital letters."""
    return matching(record, name, _CURRENCY)


def number(record: dict[str, Any], name: str, maximum: float) -> float:
    """Return a finite number from 0 to `maximum`."""
    value = _field(record, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Rejected(Reason.WRONG_TYPE, f"{name} must be a number, not {_kind(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Rejected(Reason.NON_FINITE_NUMBER, f"{name} is {value}")
    if value > maximum:
        raise Rejected(Reason.INVALID_VALUE, f"{name} is over {maximum:g}")
    if value < 0:
        raise Rejected(Reason.NEGATIVE_AMOUNT, f"{name} is negative")
    return float(value)


def integer(record: dict[str, Any], name: str, minimum: int, maximum: int) -> int:
    """Return a JSON integer from `minimum` to `maximum`."""
    value = _field(record, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Rejected(Reason.WRONG_TYPE, f"{name} must be an integer, not {_kind(value)}")
    if not minimum <= value <= maximum:
        raise Rejected(Reason.INVALID_VALUE, f"{name} must be from {minimum} to {maximum}")
    return value


def transaction(value: bytes | None) -> dict[str, Any]:
    """Return the fields of a transaction that decisions depend on.

    Raises:
        Rejected: the record does not keep the contract.
    """
    record = parse_object(value, FIELDS)
    return {
        "transaction_id": identifier(record, "transaction_id"),
        "card_id": identifier(record, "card_id"),
        "merchant_id": identifier(record, "merchant_id"),
        "amount": number(record, "amount", MAX_AMOUNT),
        "currency": currency(record, "currency"),
        "country": country(record, "country"),
        "event_time": integer(record, "event_time", 0, MAX_TIME_MS),
    }


def check_time(event_time: int, arrival: int, lateness_ms: int, skew_ms: int) -> None:
    """Refuse a transaction whose event time is too long before its arrival, or too long after it.

    Raises:
        Rejected: reason too_late or future_event_time.
    """
    if event_time < arrival - lateness_ms:
        raise Rejected(
            Reason.TOO_LATE,
            f"event time is {arrival - event_time} ms before arrival; {lateness_ms} ms are allowed",
        )
    if event_time > arrival + skew_ms:
        raise Rejected(
            Reason.FUTURE_EVENT_TIME,
            f"event time is {event_time - arrival} ms after arrival; {skew_ms} ms are allowed",
        )

"""Malformed records, as faulty producers send them.

Every kind spoils a clean record so that the job rejects it for one reason; only `extra_fields` is accepted.
"""

import json
from collections.abc import Callable
from typing import Any

from streaming_job.contracts import Reason

Record = dict[str, Any]

HUGE_BYTES = 1_000_000
"""Padding of a record that is too large for the contract, but not for the topic."""


def _json(record: Any) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _without(record: Record, field: str) -> Record:
    return {name: value for name, value in record.items() if name != field}


def _wrong_type(record: Record, choice: int) -> bytes:
    spoiled: list[Record] = [
        {"amount": str(record["amount"])},
        {"event_time": float(record["event_time"])},
        {"card_id": choice},
        {"merchant_id": None},
        {"amount": True},
    ]
    return _json(record | spoiled[choice % len(spoiled)])


def _invalid_value(record: Record, choice: int) -> bytes:
    spoiled: list[Record] = [
        {"currency": "euro"},
        {"country": "?"},
        {"merchant_id": ""},
        {"transaction_id": "x" * 65},
        {"amount": 1e12},
        {"event_time": -1},
    ]
    return _json(record | spoiled[choice % len(spoiled)])


def _missing_field(record: Record, choice: int) -> bytes:
    required = ("transaction_id", "card_id", "merchant_id", "amount", "currency", "country", "event_time")
    return _json(_without(record, required[choice % len(required)]))


def _non_finite(record: Record, choice: int) -> bytes:
    return _json(record | {"amount": (float("nan"), float("inf"), float("-inf"))[choice % 3]})


def _not_an_object(record: Record, choice: int) -> bytes:
    return _json(([record], list(record.values()), "transaction", 17)[choice % 4])


def _duplicate_field(record: Record, choice: int) -> bytes:
    return _json(record)[:-1] + b',"amount":%d.5}' % (choice % 1000)


def _broken_json(record: Record, choice: int) -> bytes:
    text = _json(record)
    return (text[: 1 + choice % (len(text) - 1)], text[:-1] + b",}", text.replace(b'"', b"'"))[choice % 3]


def _extra_fields(record: Record, choice: int) -> bytes:
    return _json(
        record
        | {"terminal": f"t-{choice % 1000}", "geo": {"lat": 1.5, "tags": ["a", None]}, "note": "größer"}
    )


Spoiler = Callable[[Record, int], bytes | None]

KINDS: dict[str, tuple[float, Reason | None, Spoiler]] = {
    "broken_json": (0.15, Reason.MALFORMED_JSON, _broken_json),
    "missing_field": (0.14, Reason.MISSING_FIELD, _missing_field),
    "wrong_type": (0.14, Reason.WRONG_TYPE, _wrong_type),
    "invalid_value": (0.08, Reason.INVALID_VALUE, _invalid_value),
    "non_finite_number": (0.08, Reason.NON_FINITE_NUMBER, _non_finite),
    "negative_amount": (
        0.08,
        Reason.NEGATIVE_AMOUNT,
        lambda record, _: _json(record | {"amount": -record["amount"]}),
    ),
    "empty_value": (0.06, Reason.EMPTY_VALUE, lambda *_: b""),
    "null_value": (0.06, Reason.EMPTY_VALUE, lambda *_: None),
    "invalid_utf8": (
        0.06,
        Reason.INVALID_UTF8,
        lambda record, _: _json(record).replace(b'"merchant_id":"', b'"merchant_id":"\xff\xc0'),
    ),
    "record_too_large": (
        0.01,
        Reason.RECORD_TOO_LARGE,
        lambda record, _: _json(record | {"note": "x" * HUGE_BYTES}),
    ),
    "not_an_object": (0.06, Reason.NOT_AN_OBJECT, _not_an_object),
    "duplicate_field": (0.04, Reason.DUPLICATE_FIELD, _duplicate_field),
    "extra_fields": (0.04, None, _extra_fields),
}
"""By name: share of the malformed records, reason of the dead letter (None: accepted), spoiler."""

"""Records of a profile topic as Debezium writes them, made without Debezium."""

import json
from collections.abc import Iterator
from typing import Any

Row = tuple[bytes, bytes | None]
"""Key and value of a record; a compacted topic requires a key."""


def key(card: str) -> bytes:
    """The key of a card's rows."""
    return json.dumps({"card_id": card}, separators=(",", ":")).encode()


def change(card: str, op: str, snapshot: str = "false", lsn: int = 1, **fields: Any) -> Row:
    """A change of a card's row; `op` and `snapshot` as Debezium has them."""
    row = {
        "card_id": card, "status": "active", "home_country": "DE", "currency": "EUR", "credit_limit": 1000.0,
        "risk_tier": 1, "opened_on": 18_000, **fields,
    }  # fmt: skip
    before, after = (row, None) if op == "d" else (None, row)
    origin = {
        "connector": "postgresql",
        "db": "bank",
        "table": "card_profiles",
        "snapshot": snapshot,
        "lsn": lsn,
    }
    return key(card), json.dumps({"before": before, "after": after, "source": origin, "op": op}).encode()


def snapshot(cards: list[str], lsn: int, **fields: Any) -> Iterator[Row]:
    """All rows of a snapshot, the first and the last of them marked as such."""
    for number, card in enumerate(cards):
        mark = "last" if number == len(cards) - 1 else "true" if number else "first"
        yield change(card, "r", mark, lsn, **fields)


def broken(card: str) -> list[Row]:
    """Records that are refused: the key is broken, the value is broken, or the two name different cards."""
    row, good = key(card), change(card, "u", lsn=9)[1]
    return [
        (b"", None),
        (b"not json", None),
        (b'{"card_id": 5}', None),
        (row, b"not json"),
        (row, b'{"op": "r", "after": null, "source": {"snapshot": "true"}}'),
        (b"", b"{}"),
        (key(f"{card}-other"), good),
    ]


def odd(card: str) -> list[Row]:
    """Records of a card that are accepted, though the key is empty, not JSON or in an unusual form."""
    value = change(card, "u", lsn=9, risk_tier=2)[1]
    return [
        (b"", value),
        (b"not json", value),
        (json.dumps({"card_id": card, "region": "eu"}).encode(), value),
        (json.dumps({"card_id": f"\\u{ord(card[0]):04x}{card[1:]}"}).replace("\\\\", "\\").encode(), value),
    ]

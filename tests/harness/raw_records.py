"""Transactions as bytes: valid ones, and ones damaged by a broken producer or a bad disk."""

import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from feature_store.kernels.hashing import hash_string
from feature_store.layout import country_code
from loadtests.oracle.partitions import partition_of
from streaming_job.contracts import Reason
from streaming_job.decode import card_numbers, strict, transactions
from streaming_job.decode.framed import RecordSchemas
from streaming_job.decode.transactions import DecodedTransactions, TimeLimits
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.log.records import Records

NOW = 1_780_000_200_000
LIMITS = TimeLimits(lateness_ms=7 * 86_400_000, skew_ms=5 * 60_000)
KEY_GROUPS = KeyGroups(Partitioner.MURMUR2, partitions=3, groups=2)
PARTITION = partition_of("c-1", KEY_GROUPS.partitions, "murmur2")
"""Partition of the card of GOOD."""


def neighbours(cards: Iterable[str]) -> list[str]:
    """Those of the cards that belong to PARTITION."""
    return [card for card in cards if partition_of(card, KEY_GROUPS.partitions, "murmur2") == PARTITION]


CARDS = neighbours(f"c-{number}" for number in range(300))
GOOD: dict[str, Any] = {
    "transaction_id": "t-1",
    "card_id": "c-1",
    "merchant_id": "m-1",
    "amount": 12.34,
    "currency": "EUR",
    "country": "FR",
    "event_time": NOW,
}


def record(**changes: Any) -> bytes:
    """GOOD as JSON, with some fields changed or added."""
    return json.dumps({**GOOD, **changes}, ensure_ascii=False).encode("utf-8", "surrogatepass")


def raw(name: str, value: str) -> bytes:
    """GOOD as JSON, with a raw text as the value of a field."""
    text = json.dumps({**GOOD, name: "HERE"}).replace('"HERE"', value)
    return text.encode("utf-8", "surrogatepass")


def without(name: str) -> bytes:
    """GOOD as JSON, without a field."""
    return json.dumps({key: value for key, value in GOOD.items() if key != name}).encode()


def records(
    values: Sequence[bytes | None],
    arrivals: Sequence[int] | None = None,
    *,
    keys: Sequence[bytes | None] | None = None,
    partitions: Sequence[int] | None = None,
    topic: str = "transactions",
) -> Records:
    """Records as fetched; record i is at offset i, by default of PARTITION."""
    n = len(values)
    return Records(
        topic,
        np.array([PARTITION] * n if partitions is None else partitions, dtype=np.int32),
        np.arange(n, dtype=np.int64),
        np.array([NOW] * n if arrivals is None else arrivals, dtype=np.int64),
        pa.array([None] * n if keys is None else keys, type=pa.binary()),
        pa.array(values, type=pa.binary()),
    )


def decode(
    values: Sequence[bytes | None],
    arrivals: Sequence[int] | None = None,
    schemas: RecordSchemas | None = None,
) -> DecodedTransactions:
    """Decode by the vectorised path; record i is at offset i of PARTITION."""
    return transactions.decode(records(values, arrivals), LIMITS, KEY_GROUPS, schemas)


Verdict = Reason | tuple[int, ...]


def alone(value: bytes | None, arrival: int = NOW) -> Verdict:
    """Outcome of a record by `strict` and a check of its partition: a reason, or the fields for kernels."""
    try:
        fields = strict.transaction(value)
        card_numbers.check(fields)
        strict.check_time(fields["event_time"], arrival, LIMITS.lateness_ms, LIMITS.skew_ms)
    except strict.Rejected as fault:
        return fault.reason
    if not neighbours([fields["card_id"]]):
        return Reason.WRONG_PARTITION
    lo, hi = hash_string(fields["card_id"])
    return (
        lo, hi, hash_string(fields["transaction_id"])[0], hash_string(fields["merchant_id"])[0],
        round(fields["amount"] * 10_000), country_code(fields["country"]), fields["event_time"], arrival,
    )  # fmt: skip


def together(
    values: list[bytes | None], arrivals: list[int] | None = None, schemas: RecordSchemas | None = None
) -> list[Verdict]:
    """Outcome of each record of a batch by the vectorised path; each has exactly one."""
    decoded = decode(values, arrivals, schemas)
    rows = decoded.rows.tolist() + [rejection.row for rejection in decoded.rejections]
    assert sorted(rows) == list(range(len(values)))
    assert decoded.rows.tolist() == sorted(decoded.rows.tolist())
    verdicts: dict[int, Verdict] = {rejection.row: rejection.reason for rejection in decoded.rejections}
    assert (decoded.records["offset"] == decoded.rows).all()
    assert (decoded.records["partition"] == PARTITION).all()
    names = ["lo", "hi", "transaction", "merchant", "amount", "country", "time", "arrival"]
    for row, accepted in zip(decoded.rows.tolist(), decoded.records[names].tolist(), strict=True):
        verdicts[row] = accepted
    return [verdicts[row] for row in range(len(values))]


_TOKENS = [
    b"\x00", b"\n", b"\r\n", b"\t", b"\x0b", b" ", b"{", b"}", b"}{", b"} {", b"}\n{", b"}\x00{", b"[",
    b"]", b",", b":", b'"', b"'", b"\\", b"\\u0000", b"\\ud800", b"\\ud83d\\ude00", b"\\n", b'\\"',
    b"//x\n", b"/*x*/", b"NaN", b"Infinity", b"-Infinity", b"-", b"+", b"nan", b"inf", b"Inf", b"-Inf",
    b"null", b"true", b"false", b"1e999", b"-1e999", b"1e-999", b"0", b"00", b".", b"1.", b".5", b"e5",
    b"E+5", b"9" * 20, b"9" * 400, b"9" * 4300, b"9" * 4301, b"-" + b"9" * 30, b"0." + b"1" * 5000, b"\xff",
    b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\xc3\xa9", b"\xe2\x82\xac",
    b"\xf0\x9f\x98\x80", b"\x7f", b"\xc2\x85", b"\xe2\x80\xa8", b"[" * 256 + b"]" * 256,
    b'{"a":' * 300 + b"1" + b"}" * 300, b"[" * 2000, b',"amount":2', b',"x":NaN', b',"x":{"a":1,"a":2}',
    b'"transaction_id":"u",', b'"event_time":1.0,', b"x" * 64, b"x" * 70_000, b'{"x":{}', b'{"x":[{}',
]  # fmt: skip
"""Texts that could be read in two ways, or lie at a limit."""


def seeds(rng: random.Random, now: int = NOW, cards: Sequence[str] = CARDS) -> bytes:
    """A record of one of the cards, valid or with one simple fault."""
    changes: dict[str, Any] = {
        "transaction_id": f"t-{rng.randrange(10**6)}",
        "card_id": rng.choice(cards),
        "amount": rng.choice([0, 1, 0.1, 1e-7, 12.345678, 1e9, 5, 1234567.89, rng.random() * 1000]),
        "event_time": now - rng.randrange(10**6),
    }
    if rng.random() < 0.3:
        name = rng.choice(list(GOOD))
        changes[name] = rng.choice(
            [None, True, [], {}, "", "é", "\x7f", " N", "x" * 64, "é" * 64, "x" * 65, "\n", "\ud800", 0, -1,
             1.0, -0.0, 10**9, 10**9 + 1, 10**14, 10**14 - 1, 2**63, 2**64, 1e308, NOW, "eur", "FRA", "FR ",
             "F1", "\uff26\uff32"]
        )  # fmt: skip
    if rng.random() < 0.3:
        changes["note"] = rng.choice(
            [1, None, "New York", "}\n{", {"a": [1, {"b": "é"}]}, "x" * 2000, [[]] * 300]
        )
    return json.dumps(
        {**GOOD, **changes}, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 1])
    ).encode("utf-8", "surrogatepass")


def mutated(rng: random.Random, record: bytes, other: bytes) -> bytes:
    """A record with one to three random damages."""
    out = bytearray(record)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0:  # a flipped bit
                if at < len(out):
                    out[at] ^= 1 << rng.randrange(8)
            case 1:  # cut off, at either end
                out = out[:at] if rng.random() < 0.7 else out[at:]
            case 2:  # a part of another record
                start = rng.randrange(len(other))
                out[at:at] = other[start : start + rng.randrange(1, 60)]
            case 3:  # a part repeated or lost
                end = min(at + rng.randrange(1, 40), len(out))
                out[at:end] = bytes(out[at:end]) * rng.choice([0, 2])
            case 4:  # an odd value inserted
                out[at:at] = rng.choice(_TOKENS)
            case _:  # an odd value in place of a value
                colon = out.find(b":", at)
                comma = out.find(b",", colon) if colon >= 0 else -1
                if comma >= 0:
                    out[colon + 1 : comma] = rng.choice(_TOKENS)
    return bytes(out)

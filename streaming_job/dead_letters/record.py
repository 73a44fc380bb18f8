"""The dead letter that the job writes for a record that it could not decide (contract dead-letter.v1).

A dead letter contains key and value of its record, together up to MAX_CARRIED bytes. A key or value that does
not fit is replaced by its size and SHA-256; its bytes stay in the log (`originals` fetches them). So the dead
letter of any record fits into the dead-letters topic, and a mini-batch of huge records does not make an
output transaction of gigabytes.

The dead letter of a card number contains no copy of it: of the value only size and SHA-256, and nothing of
the key, from whose SHA-256 the number could be guessed.
"""

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from streaming_job.contracts import Reason

MAX_CARRIED = 256 * 1024
"""Maximum bytes of key and value together."""
MAX_RECORD_KEY = 64 * 1024
"""Maximum bytes of the dead letter's own Kafka key, which is a second copy of the key."""
MAX_DETAIL = 2_000
"""Maximum characters of the detail: a validator may quote a whole record."""
MAX_LETTER = 512 * 1024
"""Maximum bytes of a dead letter with its Kafka key: 4/3 of MAX_CARRIED (base64), MAX_RECORD_KEY, and the
other fields."""


@dataclass(frozen=True)
class LogRecord:
    """A record with its position in the log."""

    topic: str
    partition: int
    offset: int
    arrival: int
    """Kafka timestamp, ms."""
    key: bytes | None
    value: bytes | None

    def dead_letter(self, reason: Reason, detail: str) -> "DeadLetter":
        """Return the dead letter of the record."""
        position = (self.topic, self.partition, self.offset)
        return DeadLetter(*position, self.arrival, self.key, self.value, reason, detail)


@dataclass(frozen=True)
class DeadLetter(LogRecord):
    """A record that could not be decided."""

    reason: Reason
    detail: str
    """Explanation for a person: the field, and what is wrong with it."""

    @property
    def record_key(self) -> bytes | None:
        """Kafka key of the dead letter: the record's key; None if it is too long, or may be a card number."""
        is_too_long = self.key is not None and len(self.key) > MAX_RECORD_KEY
        return None if is_too_long or self.reason is Reason.CARD_NUMBER else self.key

    def encode(self) -> bytes:
        """Encode as contract dead-letter.v1; less than MAX_LETTER bytes together with `record_key`.

        The key is included if it fits, then the value if it fits beside the key.
        """
        hides = self.reason is Reason.CARD_NUMBER
        room, key = (0, None) if hides else (MAX_CARRIED, self.key)
        fields: dict[str, Any] = {
            "schema_version": 1,
            "reason": self.reason.value,
            "detail": self.detail[:MAX_DETAIL].encode(errors="replace").decode(),
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "arrival_time": self.arrival,
        }
        for name, content in (("key", key), ("value", self.value)):
            fields[f"{name}_base64"] = None
            if content is None:
                continue
            if len(content) <= room:
                room -= len(content)
                fields[f"{name}_base64"] = base64.b64encode(content).decode()
            else:
                fields[f"{name}_bytes"] = len(content)
                fields[f"{name}_sha256"] = hashlib.sha256(content).hexdigest()
        return orjson.dumps(fields)

"""What the job writes of a record that it could not decide: contract dead-letter.v1.

A dead letter carries key and value of its record up to MAX_CARRIED bytes. Of what is larger it has size and
SHA-256; the bytes stay in the log (`originals` fetches them). So no record that a topic takes makes a dead
letter that the dead-letters topic would not take, or an output transaction of gigabytes.
"""

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from streaming_job.contracts import Reason

MAX_CARRIED = 256 * 1024
"""Bytes of key and value together."""
MAX_RECORD_KEY = 64 * 1024
"""Bytes of the dead letter's own Kafka key: it holds the key a second time."""
MAX_DETAIL = 2_000
"""Characters: a validator may quote a whole record."""
MAX_LETTER = 512 * 1024
"""Bytes of a dead letter, its Kafka key included: a third more than MAX_CARRIED (base64), and the rest."""


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not be decided."""

    topic: str
    partition: int
    offset: int
    arrival: int
    """Kafka timestamp, ms."""
    key: bytes | None
    value: bytes | None
    reason: Reason
    detail: str
    """For a person: which field, what was found."""

    @property
    def record_key(self) -> bytes | None:
        """Kafka key of the dead letter: the key as received, up to MAX_RECORD_KEY; else none."""
        return None if self.key is not None and len(self.key) > MAX_RECORD_KEY else self.key

    def encode(self) -> bytes:
        """A record of contract dead-letter.v1; with `record_key` less than MAX_LETTER bytes.

        The key is carried if it fits, then the value if it fits beside the key.
        """
        room = MAX_CARRIED
        fields: dict[str, Any] = {
            "schema_version": 1,
            "reason": self.reason.value,
            "detail": self.detail[:MAX_DETAIL].encode(errors="replace").decode(),
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "arrival_time": self.arrival,
        }
        for name, content in (("key", self.key), ("value", self.value)):
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

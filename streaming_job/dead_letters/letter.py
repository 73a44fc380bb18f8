"""A dead letter, parsed from its topic, or from a line of a file that a person can correct."""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from feature_store.errors import FraudError
from streaming_job.contracts import Contract, ContractError, validate
from streaming_job.masking import masked, safe

DIGEST = 16
"""Number of characters of a key's SHA-256, by which a changed key is detected."""


class LetterError(FraudError):
    """Dead letters cannot be selected, read or sent, or their records would be refused."""


@dataclass(frozen=True)
class LeftOut:
    """The size and digest of a key or value that is too large for its dead letter."""

    size: int
    """Bytes."""
    sha256: str
    """Hexadecimal."""

    def is_of(self, content: bytes | None) -> bool:
        """Return whether `content` is the key or value that was left out."""
        return content is not None and hashlib.sha256(content).hexdigest() == self.sha256


@dataclass(frozen=True)
class Letter:
    """One dead letter."""

    position: tuple[str, int, int]
    """Topic, partition and offset of the letter itself."""
    reason: str
    """Reason of contract dead-letter.v1."""
    detail: str
    topic: str
    """Topic of the refused record."""
    partition: int
    """Partition of the refused record."""
    offset: int
    """Offset of the refused record."""
    arrival: int
    """Kafka timestamp of the refused record, ms."""
    key: bytes | None
    value: bytes | None
    key_changed: bool = False
    """Whether a person has changed the key, so that the record may belong to another partition."""
    key_left_out: LeftOut | None = None
    """Set if the key is too large for the letter; then `key` is None."""
    value_left_out: LeftOut | None = None
    """Set if the value is too large for the letter; then `value` is None."""

    @property
    def is_whole(self) -> bool:
        """Whether key and value are complete; otherwise they have to be fetched from the log."""
        return self.key_left_out is None and self.value_left_out is None

    @property
    def name(self) -> str:
        """The letter's own topic, partition and offset as one string."""
        return "{}/{}/{}".format(*self.position)

    @staticmethod
    def from_record(topic: str, partition: int, offset: int, value: bytes | None) -> "Letter":
        """Parse a record of the dead-letters topic.

        Raises:
            LetterError: the record is no dead letter.
        """
        try:
            fields = json.loads(value or b"")
            validate(Contract.DEAD_LETTER, fields)
            return Letter(
                (topic, partition, offset),
                fields["reason"],
                fields["detail"],
                fields["topic"],
                fields["partition"],
                fields["offset"],
                fields["arrival_time"],
                _decoded(fields["key_base64"]),
                _decoded(fields["value_base64"]),
                key_left_out=_left_out(fields.get("key_bytes"), fields.get("key_sha256")),
                value_left_out=_left_out(fields.get("value_bytes"), fields.get("value_sha256")),
            )
        except (ValueError, ContractError) as fault:
            raise LetterError(
                f"{topic}[{partition}]@{offset} is no dead letter ({fault}); check FRAUD_TOPICS__DEAD_LETTERS"
            ) from fault

    def shown(self) -> dict[str, Any]:
        """Return printable fields for JSON, with card ids and card numbers masked."""
        return {
            **self._head(),
            "detail": safe(self.detail.encode(errors="replace"), card=self.key),
            "key": None if self.key is None else masked(safe(self.key)),
            "value": None if self.value is None else safe(self.value, card=self.key),
            **{
                f"{name}_bytes": left_out.size
                for name, left_out in (("key", self.key_left_out), ("value", self.value_left_out))
                if left_out is not None
            },
        }

    def raw(self) -> str:
        """Return a line of a file, with key and value unmasked: as text if they are UTF-8, else in base64.

        A key or value that is still left out is replaced by its size and SHA-256; null would mean that the
        record has none.
        """
        return json.dumps(
            {
                **self._head(),
                "key_digest": _digest(self.key, self.key_left_out),
                **_content("key", self.key, self.key_left_out),
                **_content("value", self.value, self.value_left_out),
            }
        )

    def _head(self) -> dict[str, Any]:
        return {
            "dead_letter": self.name,
            "reason": self.reason,
            "detail": self.detail,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "arrival_time": self.arrival,
        }

    @staticmethod
    def from_raw(line: str) -> "Letter":
        """Parse a line that `raw` returned, and that a person may have changed.

        Raises:
            LetterError: the line is invalid.
        """
        try:
            fields = json.loads(line)
            topic, partition, offset = str(fields["dead_letter"]).rsplit("/", 2)
            key, key_left_out = _mended(fields, "key")
            value, value_left_out = _mended(fields, "value")
            return Letter(
                (topic, int(partition), int(offset)),
                str(fields["reason"]),
                str(fields["detail"]),
                str(fields["topic"]),
                int(fields["partition"]),
                int(fields["offset"]),
                int(fields["arrival_time"]),
                key,
                value,
                key_changed=_digest(key, key_left_out) != fields["key_digest"],
                key_left_out=key_left_out,
                value_left_out=value_left_out,
            )
        except KeyError as fault:
            raise LetterError(f"field {fault} is missing; change key and value only") from fault
        except (ValueError, TypeError, binascii.Error) as fault:
            raise LetterError(f"not a line of `fraud dead-letters list --raw` ({fault})") from fault


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _left_out(size: Any, sha256: Any) -> LeftOut | None:
    return None if sha256 is None else LeftOut(int(size), str(sha256))


def _digest(key: bytes | None, left_out: LeftOut | None) -> str | None:
    if left_out is not None:
        return left_out.sha256[:DIGEST]
    return None if key is None else hashlib.sha256(key).hexdigest()[:DIGEST]


def _content(name: str, raw: bytes | None, left_out: LeftOut | None) -> dict[str, Any]:
    if left_out is not None:
        return {f"{name}_bytes": left_out.size, f"{name}_sha256": left_out.sha256}
    try:
        return {name: None if raw is None else raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw or b"").decode()}


def _mended(fields: dict[str, Any], name: str) -> tuple[bytes | None, LeftOut | None]:
    given = [field for field in (name, f"{name}_base64") if field in fields]
    if not given and f"{name}_sha256" in fields:
        return None, _left_out(fields[f"{name}_bytes"], fields[f"{name}_sha256"])
    if not given:
        raise KeyError(name)
    if len(given) > 1:
        raise ValueError(f"{given[0]} and {given[1]} exclude each other")
    content = fields[given[0]]
    if content is None:
        return None, None
    if not isinstance(content, str):
        raise TypeError(f"{given[0]} must be a string; put a JSON value into quotes")
    return content.encode() if given[0] == name else _decoded(content), None

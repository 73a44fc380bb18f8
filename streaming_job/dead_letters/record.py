"""What the job writes of a record that it could not decide."""

from dataclasses import dataclass

from streaming_job.contracts import Reason


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

"""The batch marker: which batch the topics hold last, told by the metadata of the committed offsets.

It is committed with the batch's records, so it knows what Spark's checkpoint cannot: whether a batch that is
run again has been written before. Pure: knows neither Spark nor Kafka.
"""

import hashlib
import json
from dataclasses import dataclass

from feature_store.errors import FraudError
from streaming_job.progress.record import Batch


class MarkerError(FraudError):
    """The topics and the checkpoint tell different stories."""


@dataclass(frozen=True)
class Marker:
    """What was committed last."""

    query_id: str
    batch_id: int
    digest: str
    """Of the batch's end offsets."""

    @staticmethod
    def of(batch: Batch) -> "Marker":
        """The marker that a batch leaves."""
        ends = json.dumps([[part.topic, part.partition, part.end] for part in batch.ranges])
        return Marker(batch.query_id, batch.batch_id, hashlib.sha256(ends.encode()).hexdigest()[:32])

    def to_metadata(self) -> str:
        """For the offsets' metadata."""
        return json.dumps({"query_id": self.query_id, "batch_id": self.batch_id, "digest": self.digest})

    @staticmethod
    def from_metadata(metadata: str) -> "Marker | None":
        """Inverse of `to_metadata`; None if somebody else wrote it."""
        try:
            fields = json.loads(metadata)
            return Marker(str(fields["query_id"]), int(fields["batch_id"]), str(fields["digest"]))
        except (ValueError, KeyError, TypeError):
            return None


def require_owner(marker: Marker | None, batch: Batch) -> None:
    """See that topics and checkpoint are of one query, however far each is.

    Args:
        marker: what was committed last; None if nothing was.
        batch: one that the checkpoint knows.

    Raises:
        MarkerError: they are not.
    """
    if marker is None:
        if batch.batch_id > 0:
            raise MarkerError(
                f"the checkpoint is at batch {batch.batch_id}, but group {batch.job_id} has no offsets: "
                "topics or group were recreated, or the brokers let the offsets expire "
                "(offsets.retention.minutes); start under a new job id"
            )
    elif marker.query_id != batch.query_id:
        raise MarkerError(
            f"the topics were last written by query {marker.query_id}, this checkpoint is of query "
            f"{batch.query_id}; restore the former's checkpoint, or use another job id"
        )


def is_written(marker: Marker | None, batch: Batch) -> bool:
    """Whether a batch is on the topics already.

    Args:
        marker: what was committed last; None if nothing was.
        batch: the one that Spark runs.

    Raises:
        MarkerError: checkpoint and topics do not belong together.
    """
    require_owner(marker, batch)
    if marker is None:
        return False
    if not batch.batch_id - 1 <= marker.batch_id <= batch.batch_id:
        raise MarkerError(
            f"the topics are at batch {marker.batch_id}, the checkpoint at {batch.batch_id}: one of them "
            "was rolled back; restore the checkpoint that belongs to the topics"
        )
    if marker.batch_id == batch.batch_id and marker != Marker.of(batch):
        raise MarkerError(
            f"batch {batch.batch_id} was written with other offsets than the checkpoint names; "
            "restore the checkpoint that belongs to the topics"
        )
    return marker.batch_id == batch.batch_id

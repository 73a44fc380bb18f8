"""Reading Spark's checkpoint: the query's id, and the offset ranges that a batch was given.

Spark writes `offsets/<batch>` before it runs the batch, so a batch that is run again has the same ranges.
"""

import json
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from feature_store.errors import FraudError
from streaming_job.progress.record import OffsetRange

RESTORE = "restore the checkpoint whole, or start a new job id"


class CheckpointError(FraudError):
    """The checkpoint is not what this job can go on from."""


@dataclass(frozen=True)
class _Offsets:
    """A file of the offset log."""

    key_groups: int
    ends: dict[tuple[str, int], int]
    """By topic and partition."""

    @staticmethod
    def parse(text: str) -> "_Offsets":
        """Line 1: version, line 2: metadata, line 3: {topic: {partition: offset}} of the only source."""
        _, metadata, source = text.splitlines()
        return _Offsets(
            int(json.loads(metadata)["conf"]["spark.sql.shuffle.partitions"]),
            {
                (topic, int(partition)): int(end)
                for topic, ends in json.loads(source).items()
                for partition, end in ends.items()
            },
        )


class Checkpoint:
    """A checkpoint directory on any file system that Hadoop knows."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm: Any = spark._jvm
        hadoop: Any = spark._jsc.hadoopConfiguration()
        # looked up once: each step of such a name asks the JVM's whole class path, in every batch
        self._new_path = jvm.org.apache.hadoop.fs.Path
        self._to_string = jvm.org.apache.commons.io.IOUtils.toString
        self._path = self._new_path(location)
        self._files = self._path.getFileSystem(hadoop)
        self._query_id: str | None = None
        self._ranges: dict[int, dict[tuple[str, int], int]] = {}

    def _read(self, *names: str) -> str | None:
        path = self._path
        for name in names:
            path = self._new_path(path, name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = self._to_string(stream, "UTF-8")
        except Py4JJavaError as fault:  # Hadoop's check sums notice most damage
            raise CheckpointError(
                f"the checkpoint's file {'/'.join(names)} cannot be read ({fault.java_exception}); {RESTORE}"
            ) from fault
        finally:
            stream.close()
        return str(text)

    def query_id(self) -> str | None:
        """Id of the query whose checkpoint this is; None before its first start."""
        if self._query_id is None and (text := self._read("metadata")) is not None:
            try:
                self._query_id = str(json.loads(text)["id"])
            except (ValueError, LookupError, TypeError) as fault:
                raise CheckpointError(
                    f"the checkpoint's file metadata is damaged ({fault}); {RESTORE}"
                ) from fault
        return self._query_id

    def last_batch(self) -> int | None:
        """Number of the last batch that was begun; None before the first."""
        directory = self._new_path(self._path, "offsets")
        if not self._files.exists(directory):
            return None
        names = [str(status.getPath().getName()) for status in self._files.listStatus(directory)]
        return max((int(name) for name in names if name.isdigit()), default=None)

    def key_groups(self, batch_id: int) -> int:
        """Number of state partitions that a batch ran with, the same for the checkpoint's whole life."""
        return self._offsets_of(batch_id).key_groups

    def _offsets_of(self, batch_id: int) -> "_Offsets":
        text = self._read("offsets", str(batch_id))
        if text is None:
            raise CheckpointError(f"the checkpoint has no offsets of batch {batch_id}; {RESTORE}")
        try:
            return _Offsets.parse(text)
        except (ValueError, LookupError, TypeError, AttributeError) as fault:
            raise CheckpointError(
                f"the checkpoint's offsets of batch {batch_id} are damaged ({fault}); {RESTORE}"
            ) from fault

    def _ends(self, batch_id: int) -> dict[tuple[str, int], int]:
        if batch_id not in self._ranges:
            ends = self._offsets_of(batch_id).ends
            self._ranges = {number: known for number, known in self._ranges.items() if number == batch_id - 1}
            self._ranges[batch_id] = ends
        return self._ranges[batch_id]

    def ranges(self, batch_id: int) -> tuple[OffsetRange, ...]:
        """What a batch reads, by topic and partition.

        The first batch is empty: its ends are where the log began.

        Raises:
            CheckpointError: the offset log lacks the batch, or all else is gone: Spark would write on.
        """
        if not self._files.exists(self._new_path(self._path, "metadata")):
            raise CheckpointError(f"the checkpoint was deleted or moved under a running job; {RESTORE}")
        starts = self._ends(max(batch_id - 1, 0))
        return tuple(
            OffsetRange(topic, partition, starts.get((topic, partition), 0), end)
            for (topic, partition), end in sorted(self._ends(batch_id).items())
        )

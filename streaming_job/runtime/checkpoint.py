"""Spark's checkpoint: whose it is, how far it has come, and how to go back when its last files are damaged.

Beside Spark's own files lies `job.json`: what the job's first start has fixed for ever.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from feature_store.errors import FraudError

RESTORE = "restore a copy of the checkpoint, or start a new job id"
FIXED = "job.json"


class CheckpointError(FraudError):
    """The checkpoint is not what this job can go on from."""


@dataclass(frozen=True)
class Fixed:
    """What a job's first start fixes: which card belongs to which key group follows from it."""

    job_id: str
    partitioner: str
    partitions: int
    """Of the topic of transactions."""
    key_groups: int
    label_delay_ms: int | None = None
    """Of merchant facts; None: the job keeps none."""


class Checkpoint:
    """A checkpoint directory on any file system that Hadoop knows."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm: Any = spark._jvm
        hadoop: Any = spark._jsc.hadoopConfiguration()
        self._new_path = jvm.org.apache.hadoop.fs.Path
        self._to_string = jvm.org.apache.commons.io.IOUtils.toString
        self._path = self._new_path(location)
        self._files = self._path.getFileSystem(hadoop)

    def _at(self, *names: str) -> Any:
        path = self._path
        for name in names:
            path = self._new_path(path, name)
        return path

    def _read(self, *names: str) -> str | None:
        path = self._at(*names)
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
        text = self._read("metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, LookupError, TypeError) as fault:
            raise CheckpointError(
                f"the checkpoint's file metadata is damaged ({fault}); {RESTORE}"
            ) from fault

    def fixed(self) -> Fixed | None:
        """What the first start has fixed; None before it.

        Raises:
            CheckpointError: it is damaged, or gone while the rest is there.
        """
        text = self._read(FIXED)
        if text is None:
            if self.epochs("offsets"):
                raise CheckpointError(f"the checkpoint's file {FIXED} is gone; {RESTORE}")
            return None
        try:
            return Fixed(**json.loads(text))
        except (ValueError, TypeError) as fault:
            raise CheckpointError(f"the checkpoint's file {FIXED} is damaged ({fault}); {RESTORE}") from fault

    def fix(self, fixed: Fixed) -> None:
        """Write what the first start fixes."""
        stream = self._files.create(self._at(FIXED), True)
        try:
            # what is not set is not told: an earlier release does not know it
            told = {name: value for name, value in asdict(fixed).items() if value is not None}
            stream.write(bytearray(json.dumps(told).encode()))
        finally:
            stream.close()

    def epochs(self, log: str) -> list[int]:
        """Numbers in Spark's log of `offsets` (epochs begun) or `commits` (epochs ended), ascending."""
        directory = self._at(log)
        if not self._files.exists(directory):
            return []
        names = [str(status.getPath().getName()) for status in self._files.listStatus(directory)]
        return sorted(int(name) for name in names if name.isdigit())

    def require_whole(self) -> None:
        """See that it was not deleted under a running job: Spark would write on into nothing.

        Raises:
            CheckpointError: it was.
        """
        if not self._files.exists(self._at("metadata")):
            raise CheckpointError(f"the checkpoint was deleted or moved under a running job; {RESTORE}")

    def mend(self) -> int | None:
        """Forget the last epochs where what Spark's logs say of them is not whole, or does not fit together.

        A power cut leaves files that are cut or empty; a copy taken while the job ran has more of one log
        than of the other.

        Returns:
            The epoch gone back to, -1 for the beginning; None if nothing was wrong.
        """
        ended, begun = self.epochs("commits"), self.epochs("offsets")
        whole = (number for number in reversed(ended) if number in begun and self._is_whole(number))
        last = next(whole, -1)
        begun_after = [number for number in begun if number > last]
        if ended[-1:] in ([], [last]) and (
            not begun_after or (begun_after == [last + 1] and self._has_lines("offsets", last + 1))
        ):
            return None
        self.drop_after(last)
        return last

    def _is_whole(self, epoch: int) -> bool:
        return self._has_lines("commits", epoch) and self._has_lines("offsets", epoch)

    def _has_lines(self, log: str, epoch: int) -> bool:
        """Whether an entry of a log can be read: its version, then objects as JSON, one a line."""
        try:
            version, *lines = (self._read(log, str(epoch)) or "").splitlines()
            for line in lines:
                json.loads(line)
        except (CheckpointError, ValueError):
            return False
        return version.startswith("v") and bool(lines)

    def drop_after(self, epoch: int) -> None:
        """Forget the epochs after one; their versions of the state have names that no other has."""
        for log in ("commits", "offsets"):
            for number in self.epochs(log):
                if number > epoch:
                    self._files.delete(self._at(log, str(number)), False)

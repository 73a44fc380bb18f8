"""Spark's checkpoint directory: its query id, its epochs, and the removal of damaged last epochs.

Beside Spark's files it contains `job.json`: the settings that the job's first start fixed for later starts.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming_job.log.losses import FIELD, NOTHING_LOST, Losses, losses_in
from streaming_job.log.partitioner import Layout
from streaming_job.progress.record import ROLLOUT_TOPICS
from streaming_job.runtime.checkpoint_errors import RESTORE, AccessError, CheckpointError

FIXED, METADATA = "job.json", "metadata"


@dataclass(frozen=True)
class FixedSettings:
    """The settings that a job's first start fixes for later starts, because its state depends on them."""

    job_id: str
    layout: Layout
    """Where the transactions are."""
    key_groups: int
    label_delay_ms: int | None
    """Label delay of merchant facts; None: the job keeps no merchant facts."""
    rollout_topics: tuple[str, ...]
    """Topics of the rollouts that have decided in the state, oldest first; the job reads the last one."""
    losses: Losses = NOTHING_LOST
    """What the log had lost at the first start."""

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "FixedSettings":
        """Parse the fields of a file `job.json`.

        Raises:
            KeyError, TypeError, ValueError: they are invalid.
        """
        parsed = {
            "layout": Layout.from_json(fields["layout"]),
            ROLLOUT_TOPICS: tuple(fields[ROLLOUT_TOPICS]),
            FIELD: losses_in(fields),
        }
        return FixedSettings(**{**fields, **parsed})


def query_in(metadata: str | bytes) -> str:
    """Return the id of the query that Spark's file `metadata` names.

    Raises:
        CheckpointError: the file is damaged.
    """
    try:
        return str(json.loads(metadata)["id"])
    except (ValueError, LookupError, TypeError) as fault:
        raise CheckpointError(f"the checkpoint's file {METADATA} is damaged ({fault}); {RESTORE}") from fault


@contextmanager
def _access(name: str, act: str) -> Iterator[None]:
    """Name the file, and what was done to it, in the error of a file system that refuses or does not answer.

    Raises:
        AccessError: the block raised an exception of Java.
    """
    try:
        yield
    except Py4JJavaError as fault:
        raise AccessError(
            f"the checkpoint's file {name} cannot be {act} ({fault.java_exception}); check the job's "
            "permissions and the file system"
        ) from fault


class Checkpoint:
    """A checkpoint directory on any file system that Hadoop supports.

    Each method raises AccessError if the file system refuses access, or has not answered for minutes.
    """

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
        path, name = self._at(*names), "/".join(names)
        with _access(name, "opened"):
            stream = self._files.open(path) if self._files.exists(path) else None
        if stream is None:
            return None
        # an object store may refuse the content of a file that it lists
        with _access(name, "read"), closing(stream):
            try:
                return str(self._to_string(stream, "UTF-8"))
            except Py4JJavaError as fault:
                if not fault.java_exception.getClass().getName().endswith(".ChecksumException"):
                    raise
                raise CheckpointError(
                    f"the checkpoint's file {name} is damaged ({fault.java_exception}); {RESTORE}"
                ) from fault

    def query_id(self) -> str | None:
        """Return the id of the checkpoint's query; None before its first start.

        Raises:
            CheckpointError: the file with the id is damaged.
        """
        text = self._read(METADATA)
        return None if text is None else query_in(text)

    def begin(self) -> str:
        """Return the id of the checkpoint's query; before its first start, choose it, so that Spark uses it.

        Raises:
            CheckpointError: as `query_id`.
        """
        query_id = self.query_id()
        if query_id is None:
            query_id = str(uuid.uuid4())
            self._write(METADATA, json.dumps({"id": query_id}))
        return query_id

    def fixed(self) -> FixedSettings | None:
        """Return the settings that the first start fixed; None before the first start.

        Before the first epoch a damaged file counts as absent: the first start was killed while writing it.

        Raises:
            CheckpointError: epochs exist, but the file is missing, is damaged or cannot be read.
        """
        try:
            if (text := self._read(FIXED)) is not None:
                return FixedSettings.from_json(json.loads(text))
            problem = CheckpointError(f"the checkpoint's file {FIXED} is missing; {RESTORE}")
        except CheckpointError as fault:
            problem = fault
        except (ValueError, LookupError, TypeError) as fault:
            problem = CheckpointError(f"the checkpoint's file {FIXED} is damaged ({fault}); {RESTORE}")
        if self.epochs("offsets"):
            raise problem
        return None

    def fix(self, fixed: FixedSettings) -> None:
        """Write the settings that the first start fixes."""
        self._write(FIXED, json.dumps(asdict(fixed)))

    def _write(self, name: str, text: str) -> None:
        with _access(name, "written"), closing(self._files.create(self._at(name), True)) as stream:
            stream.write(bytearray(text.encode()))

    def epochs(self, log: str) -> list[int]:
        """Return the epochs in Spark's log of `offsets` (begun) or `commits` (ended), ascending."""
        directory = self._at(log)
        with _access(log, "listed"):
            if not self._files.exists(directory):
                return []
            names = [str(status.getPath().getName()) for status in self._files.listStatus(directory)]
        return sorted(int(name) for name in names if name.isdigit())

    def remove(self) -> bool:
        """Remove the directory with all that is in it; return whether there was one.

        Raises:
            AccessError: the file system refuses it.
        """
        cause: object = "it is still there"
        try:
            was_there = bool(self._files.exists(self._path))
            self._files.delete(self._path, True)
            if not self._files.exists(self._path):
                return was_there
        except Py4JJavaError as fault:
            cause = fault.java_exception
        raise AccessError(
            f"the checkpoint {self._path} cannot be removed ({cause}); check the job's permissions and the "
            "file system"
        )

    def require_whole(self) -> None:
        """Check that the directory was not deleted while the job runs: Spark would not notice.

        Raises:
            CheckpointError: it was deleted or moved.
        """
        with _access(METADATA, "looked for"):
            is_there = self._files.exists(self._at(METADATA))
        if not is_there:
            raise CheckpointError(f"the checkpoint was deleted or moved under a running job; {RESTORE}")

    def mend(self) -> int | None:
        """Drop the last epochs whose entries in Spark's logs are incomplete or inconsistent.

        A power failure leaves truncated or empty files; a copy taken while the job ran may have more entries
        of one log than of the other.

        Returns:
            The last epoch that is left, -1 if there is none; None if nothing had to be dropped.
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
        """Return whether a log entry is readable: a line with the version, then one JSON object per line."""
        try:
            version, *lines = (self._read(log, str(epoch)) or "").splitlines()
            for line in lines:
                json.loads(line)
        except (CheckpointError, ValueError):
            return False
        return version.startswith("v") and bool(lines)

    def drop_after(self, epoch: int) -> None:
        """Drop the epochs after `epoch`; their state files stay, but have unique names and are never read."""
        for log in ("commits", "offsets"):
            for number in self.epochs(log):
                if number > epoch:
                    with _access(f"{log}/{number}", "removed"):
                        self._files.delete(self._at(log, str(number)), False)

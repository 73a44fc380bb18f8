"""The archiver of one partition: begins at the end offset of the partition's manifest."""

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from feature_store.archive import commit
from feature_store.archive.file_writer import FinishedFile
from feature_store.archive.layout import RECORD, columns, partition_path
from feature_store.archive.manifest import Kind, Manifest, Span
from feature_store.archive.partition_writer import PartitionWriter
from feature_store.archive.reader import Archive
from feature_store.archive.storage import NewFile, Storage
from feature_store.errors import FraudError
from streaming_job.archive.contract_columns import decoder
from streaming_job.archive.topics import ArchivedTopic, recreated
from streaming_job.decode.framed import RecordSchemas
from streaming_job.log.records import Arrived
from streaming_job.runtime import failpoints


class LostRecordsError(FraudError):
    """Retention has deleted records of a topic before they were archived.

    Run the archiver all the time, or keep the topic for longer. With `--accept-loss` the archiver records
    these offsets as lost, and goes on with the oldest records that are left; a replay and an audit can then
    only begin after them.
    """


class PartitionArchiver:
    """Writer of the archive of one partition."""

    def __init__(
        self, storage: Storage, topic: ArchivedTopic, partition: int, first: int,
        schemas: Callable[[], RecordSchemas | None], *, accept_loss: bool,
    ) -> None:  # fmt: skip
        """Continue where the archive ends, or begin it with the first record that the topic has.

        Args:
            first: first offset that the topic has.
            schemas: see `contract_columns.transaction_columns`.
            accept_loss: whether records that were deleted before they were archived are recorded as lost.

        Raises:
            ArchiveTopicError: the archive is of a topic that was deleted since.
            LostRecordsError: records were deleted before they were archived.
        """
        self._storage, self._topic, self._partition = storage, topic, partition
        self._decode = decoder(topic.field, schemas)
        self._directory = partition_path(topic.name, partition)
        manifest = Manifest(
            topic.name, partition, topic.topic_id, topic.is_compacted, topic.compacted_before_ms, begin=first
        )
        self._manifest = commit.begin(storage, manifest)
        if self._manifest.topic_id != topic.topic_id:
            raise recreated(topic.name, storage.place)
        lost = Span(Kind.LOST, self._manifest.end, first)
        if lost.end > lost.first and not accept_loss:
            raise LostRecordsError(
                f"offsets {lost.first} to {lost.end} of {topic.name}-{partition} were deleted before they "
                "were archived; record them as lost with --accept-loss"
            )
        self._open()
        if lost.end > lost.first:
            self._commit_all([self._writer.finish(Kind.FILE), FinishedFile(lost, None)])
            self._open()

    @property
    def position(self) -> int:
        """Next offset to read."""
        return self._writer.position

    @property
    def end(self) -> int:
        """End of what the archive lists."""
        return self._manifest.end

    @property
    def newest_arrival_ms(self) -> int:
        """Newest arrival among the records that the archive lists; 0 without records."""
        return max((span.most_ms for span in self._manifest.files()), default=0)

    def newest(self) -> Arrived | None:
        """Return the last record that the archive lists; None without records."""
        last = max(self._manifest.files(), key=lambda span: span.first, default=None)
        if last is None:
            return None
        *_, batch = Archive(self._storage.place).read(
            self._topic.field, self._partition, last.first, last.end, columns=("offset", "timestamp")
        )
        return Arrived(batch["offset"][-1].as_py(), batch["timestamp"].cast(pa.int64())[-1].as_py())

    def add(self, batch: pa.RecordBatch | None, end: int) -> None:
        """Archive records.

        Args:
            batch: records (RECORD) in the order of offsets; those before `position` are left out. None: none.
            end: offset to which the log is read, past records, markers and aborted records.
        """
        if batch is not None:
            known = int(np.searchsorted(np.asarray(batch["offset"]), self.position))
            self._commit_all(self._writer.add(batch.slice(known)))
        self._commit_all(self._writer.passed(end))
        if self._manifest.end > self.position:  # another archiver is ahead
            self._reopen()

    def write_tail(self, *, is_last: bool) -> None:
        """List what is not listed yet, in a file that a longer one replaces later.

        Args:
            is_last: whether no records are added after it: then the tail is not read back.
        """
        if self.position > self._manifest.end and (finished := self._writer.finish(Kind.TAIL)):
            position = self.position
            self._commit_all([finished])
            if not is_last:
                self._open()
                self._commit_all(self._writer.passed(position))

    def discard(self) -> None:
        """Delete what is written but not listed."""
        self._writer.discard()

    def _open(self) -> None:
        """Begin the file that follows the whole ones, with the records of the tail."""
        manifest = self._manifest
        schema = columns(self._topic.field)
        self._writer = PartitionWriter(self._new_file, manifest.closed, schema, self._decode)
        if manifest.tail is not None:
            archive = Archive(self._storage.place)
            for batch in archive.read(self._topic.field, self._partition, manifest.closed, manifest.end):
                self._commit_all(self._writer.add(batch.select(RECORD.names)))
            self._commit_all(self._writer.passed(manifest.end))

    def _reopen(self) -> None:
        self._writer.discard()
        self._open()

    def _new_file(self) -> NewFile:
        with self._storage.locked(self._directory):
            return self._storage.new_file(self._directory)

    def _commit_all(self, finished: Iterable[FinishedFile | None]) -> None:
        for each in finished:
            if each is not None:
                self._manifest = commit.commit(
                    self._storage, self._topic.name, self._partition, each, failpoints.reach
                )

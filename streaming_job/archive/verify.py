"""The proof of an archive: against its manifests, and against the topics as far as they still reach.

1. Each file has the size and the SHA-256 of the manifest, and as many records, with ascending offsets between
   the manifest's. The manifests themselves leave no offset out (`Manifest.of_json`). An archiver may replace
   a tail meanwhile, and files may expire: then those count that the manifest lists instead.
2. Each record that a topic still has is in the archive, equal in offset, timestamp, key, value and headers;
   and the archive has no other record in these offsets, except versions that compaction has removed since.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feature_store.archive.layout import RECORD, ArchiveError, partition_path
from feature_store.archive.manifest import Kind, Manifest, Span
from feature_store.archive.reader import Archive
from streaming_job.archive.archiver import MOST_BYTES, MOST_RECORDS, TUNING, by_partition
from streaming_job.archive.topics import look_up
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.follower import LogFollower
from streaming_job.log.records import PartitionId

_BLOCK = 1 << 22
_WAIT_S = 1.0


@dataclass
class Proof:
    """The result of a verification."""

    records: int = 0
    """Records in the archive's files."""
    bytes: int = 0
    compared: int = 0
    """Records that were compared with those of the topics."""
    holes: Counter[str] = field(default_factory=Counter)
    """Offsets without a record, by what explains them."""
    problems: list[str] = field(default_factory=list)


def verify_files(archive: Archive, proof: Proof) -> None:
    """Prove the files of an archive against its manifests."""
    for former in archive.former():
        _verify_files(former, proof)
    _verify_files(archive, proof)


def _verify_files(archive: Archive, proof: Proof) -> None:
    for name in archive.topics:
        for partition in archive.partitions(name):
            try:
                _verify_partition(archive, name, partition, proof)
            except ArchiveError as fault:
                proof.problems.append(str(fault))


def _verify_partition(archive: Archive, name: str, partition: int, proof: Proof) -> None:
    """Prove the files of a partition; raises ArchiveError if its manifest is damaged."""
    manifest = archive.manifest(name, partition)
    left = deque(manifest.spans)
    while left:
        span = left.popleft()
        faults = _faults(archive, name, manifest, span) if span.name else []
        if faults and span not in (renewed := archive.manifest(name, partition)).spans:
            manifest = renewed
            left = deque(other for other in manifest.spans if other.end > span.first)
            continue
        proof.records += span.rows
        proof.bytes += span.bytes
        proof.holes[_reason(manifest, span)] += span.holes
        proof.problems += faults


def verify_topics(archive: Archive, settings: LetterSettings, proof: Proof) -> None:
    """Prove an archive against the topics, as far as they still reach."""
    topics = {topic.name: topic for topic in look_up(settings, settings.topics)}
    # before the ends of the topics: an archiver may list more meanwhile
    manifests = {
        (topic.name, partition): archive.manifest(topic.field, partition)
        for topic in topics.values()
        if archive.topics.get(topic.field) == topic.name
        for partition in archive.partitions(topic.field)
    }
    client = {**TUNING, **settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    with EndOffsets(client, tuple(topics)) as bounds:
        firsts, lasts = with_retries(bounds.first), with_retries(bounds.last)
    starts: dict[PartitionId, int] = {}
    ends: dict[PartitionId, int] = {}
    for (name, partition), first in firsts.items():
        topic, manifest = topics[name], manifests.get((name, partition))
        if manifest is None:
            if lasts[name, partition] > first:
                proof.problems.append(f"{name}-{partition} is not archived")
            continue
        if manifest.topic_id != topic.topic_id:
            proof.problems.append(f"{name} was deleted and created again since the archive began")
            continue
        start, end = max(first, manifest.begin), min(manifest.end, lasts[name, partition])
        if manifest.end > lasts[name, partition]:
            proof.problems.append(
                f"{name}-{partition} ends at {lasts[name, partition]}, the archive at {manifest.end}: the "
                "topic has lost records"
            )
        if start < end:
            starts[name, partition], ends[name, partition] = start, end
    log = LogFollower(client, starts, with_headers=True)
    try:
        log.limit(ends)
        done = dict(starts)
        while any(done[tp] < end for tp, end in ends.items()):
            read = dict(by_partition(log.take(MOST_RECORDS, MOST_BYTES, _WAIT_S)))
            for tp, position in log.positions.items():
                name, partition = tp
                topic = topics[name]
                if position > done[tp]:
                    # files may have expired meanwhile
                    first = max(done[tp], archive.manifest(topic.field, partition).begin)
                    archived = list(
                        archive.read(topic.field, partition, first, max(first, position),
                                     columns=RECORD.names, allow_lost=True)
                    )  # fmt: skip
                    log_batches = [read[tp]] if tp in read else []
                    batch = pa.Table.from_batches(log_batches, RECORD)
                    batch = batch.filter(pc.greater_equal(batch["offset"], first))
                    proof.problems += _differences(
                        tp, pa.Table.from_batches(archived, RECORD), batch, topic.is_compacted
                    )
                    proof.compared += len(batch)
                    done[tp] = position
    finally:
        log.close()


def _reason(manifest: Manifest, span: Span) -> str:
    """Return what explains the offsets of a span that have no record."""
    if span.kind is Kind.LOST:
        return "deleted before they were archived"
    return "compacted, or transaction markers" if manifest.is_compacted else "transaction markers and aborted"


def _faults(archive: Archive, name: str, manifest: Manifest, span: Span) -> list[str]:
    """Return what is wrong with a file."""
    try:
        return [*_differing(archive, name, manifest, span)]
    except ArchiveError as fault:
        return [str(fault)]


def _differing(archive: Archive, name: str, manifest: Manifest, span: Span) -> Iterator[str]:
    """Yield how a file differs from the manifest.

    Raises:
        ArchiveError: it cannot be read.
    """
    where = f"{partition_path(manifest.topic, manifest.partition)}/{span.name}"
    digest, size = hashlib.sha256(), 0
    try:
        with archive.storage.open(where) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
    except FileNotFoundError:
        yield f"{where} is missing; restore it from a copy"
        return
    if (size, digest.hexdigest()) != (span.bytes, span.sha256):
        yield f"{where} is not the file of the manifest; restore it from a copy"
        return
    rows, last = 0, span.first - 1
    for batch in archive.read(name, manifest.partition, span.first, span.end, columns=["offset"]):
        offsets = np.asarray(batch["offset"])
        rows += offsets.size
        if offsets[0] <= last or (np.diff(offsets) <= 0).any():
            yield f"{where} has offsets that do not ascend"
        last = int(offsets[-1])
    if rows != span.rows or last >= span.end:
        yield f"{where} has other records than the manifest says"


def _differences(
    partition: PartitionId, archived: pa.Table, log: pa.Table, is_compacted: bool
) -> Iterator[str]:
    """Yield how the archive differs from the log in the same offsets."""
    where = f"{partition[0]}-{partition[1]}"
    kept, there = archived["offset"], log["offset"]
    if missing := pc.filter(there, pc.invert(pc.is_in(there, kept))).to_pylist():
        yield f"{where}: {len(missing)} records are not in the archive, the first at offset {missing[0]}"
    is_there = pc.is_in(kept, there)
    if not is_compacted and (foreign := pc.filter(kept, pc.invert(is_there)).to_pylist()):
        yield f"{where}: {len(foreign)} records are only in the archive, the first at offset {foreign[0]}"
    if not missing:
        common = archived.filter(is_there)
        if not common.equals(log):
            rows = (row for row in range(len(log)) if common.slice(row, 1) != log.slice(row, 1))
            offset = there[next(rows)].as_py()
            yield f"{where}: records differ from those of the archive, the first at offset {offset}"

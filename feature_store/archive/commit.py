"""Changes of an archive: each takes effect with one replaced manifest, so a writer may be killed anywhere."""

import json
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any

from feature_store.archive.file_writer import FinishedFile
from feature_store.archive.layout import (
    ARCHIVE_FILE,
    FORMAT,
    MANIFEST_FILE,
    ArchiveError,
    partition_path,
)
from feature_store.archive.manifest import Kind, Manifest, Span, parsed
from feature_store.archive.storage import Storage


class CommitPoint(StrEnum):
    """The steps of a change, named by what has just happened."""

    WRITTEN = "archive_written"
    """A file is on the disk, but it has no name."""
    PUBLISHED = "archive_published"
    """The file has its name, but the manifest does not list it."""
    LISTED = "archive_listed"
    """The manifest lists the file; the tail that it replaces is still there."""


Reach = Callable[[CommitPoint], None]
"""Called at each step; a test kills the process there."""


def names_of(storage: Storage) -> dict[str, str]:
    """Return the archive's topics by field; none if there is no archive."""
    return dict(_content(storage)["topics"])


def former_of(storage: Storage) -> list[tuple[str, str]]:
    """Return field and name of the topics in whose place the archive has others now."""
    return [(field, name) for field, name in _content(storage)["former"]]


def settled_of(storage: Storage) -> dict[int, int] | None:
    """Return what `settle` has noted; None: no archiver of a release that does so has begun the archive."""
    settled = _content(storage)["settled"]
    return None if settled is None else {int(partition): end for partition, end in settled.items()}


def settle(storage: Storage, ends: Mapping[int, int]) -> None:
    """Note the offsets of the progress, by partition, before which all of its Kafka transactions are listed.

    The manifests alone do not tell: a topic's file that is full is listed at once, others later.
    """
    with storage.locked(""):
        content = _content(storage)
        settled = {str(partition): end for partition, end in sorted(ends.items())}
        if content["settled"] != settled:
            _replace_content(storage, {**content, "settled": settled})


def _content(storage: Storage) -> dict[str, Any]:
    text = storage.read(ARCHIVE_FILE)
    content = {} if text is None else parsed(text, f"{storage.place}/{ARCHIVE_FILE}")
    return {"format": FORMAT, "topics": {}, "former": [], "settled": None, **content}


def _replace_content(storage: Storage, content: Mapping[str, Any]) -> None:
    storage.replace(ARCHIVE_FILE, json.dumps(content, indent=1).encode())


def create(storage: Storage, names: Mapping[str, str], replaceable: Collection[str] = ()) -> None:
    """Create an archive, or add topics to it.

    Args:
        names: topics by field of the table of topics.
        replaceable: fields whose topics may be others than before; the archive keeps those, too.

    Raises:
        ArchiveError: the archive is of other topics.
    """
    with storage.locked(""):
        content = _content(storage)
        present, former = content["topics"], former_of(storage)
        replaced = [(field, name) for field, name in present.items() if names.get(field, name) != name]
        for field, name in replaced:
            if field not in replaceable:
                raise ArchiveError(
                    f"the archive {storage.place} is of the topic {name}, not of {names[field]}; give "
                    "another directory, or --switched if the job was switched to a replay with this topic"
                )
        topics = {**present, **names}
        if topics != present:
            former = [place for place in (*former, *replaced) if place not in topics.items()]
            _replace_content(storage, {**content, "topics": topics, "former": former})


def manifest_of(storage: Storage, topic: str, partition: int) -> Manifest | None:
    """Return the manifest of a partition; None if there is none."""
    name = f"{partition_path(topic, partition)}/{MANIFEST_FILE}"
    text = storage.read(name)
    return None if text is None else Manifest.of_json(text, f"{storage.place}/{name}")


def begin(storage: Storage, manifest: Manifest) -> Manifest:
    """Write the first manifest of a partition, unless there is one; return the one that counts.

    Also delete what dead writers have left.
    """
    directory = partition_path(manifest.topic, manifest.partition)
    with storage.locked(directory):
        storage.delete_abandoned(directory)
        present = manifest_of(storage, manifest.topic, manifest.partition)
        if present is None:
            _write(storage, manifest)
            return manifest
        listed = present.tail.name if present.tail else ""
        for name in storage.names(directory):
            if name.startswith("_tail-") and name != listed:
                storage.delete(f"{directory}/{name}")
        # a file that was published, but not listed: after a compaction the next one may end elsewhere
        _delete_files(storage, directory, lambda first, _: first >= present.closed)
        return present


def commit(storage: Storage, topic: str, partition: int, finished: FinishedFile, reach: Reach) -> Manifest:
    """Publish a finished file, and list it in place of the tail; return the manifest.

    Nothing happens if another archiver has already done the same.

    Raises:
        ArchiveError: there is no manifest, or the file does not follow its whole files.
    """
    span, directory = finished.span, partition_path(topic, partition)
    with storage.locked(directory):
        manifest = manifest_of(storage, topic, partition)
        if manifest is None:
            raise ArchiveError(f"{storage.place}/{directory} has no manifest; start the archiver again")
        known = manifest.end if span.kind is Kind.TAIL else manifest.closed
        if span.end <= known:
            if finished.file is not None:
                finished.file.discard()
            return manifest
        updated = manifest.appended(span)
        reach(CommitPoint.WRITTEN)
        if finished.file is not None:
            storage.publish(finished.file, f"{directory}/{span.name}")
        reach(CommitPoint.PUBLISHED)
        _write(storage, updated)
        reach(CommitPoint.LISTED)
        if manifest.tail is not None:
            storage.delete(f"{directory}/{manifest.tail.name}")
        return updated


def expire(storage: Storage, topic: str, partition: int, before_ms: int) -> tuple[Span, ...]:
    """Delete the oldest whole files all of whose records arrived before a time; return their spans.

    Files are deleted from the first one on, until one has a later record, so no hole arises. The manifest
    comes first: a killed expiry leaves files that no manifest lists, which the next expiry deletes.
    """
    directory = partition_path(topic, partition)
    with storage.locked(directory):
        manifest = manifest_of(storage, topic, partition)
        if manifest is None:
            return ()
        kept = (
            number
            for number, span in enumerate(manifest.spans)
            if span.kind is Kind.TAIL or (span.kind is Kind.FILE and span.most_ms >= before_ms)
        )
        expired = manifest.spans[: next(kept, len(manifest.spans))]
        if expired:
            _write(storage, manifest.without(len(expired)))
        begin = manifest.without(len(expired)).begin
        _delete_files(storage, directory, lambda _, end: end <= begin)
        return expired


def _delete_files(storage: Storage, directory: str, where: Callable[[int, int], bool]) -> None:
    """Delete the files of a partition whose first offset and end are as wanted."""
    for day in storage.names(directory):
        names = storage.names(f"{directory}/{day}") if day.startswith("day=") else []
        for name in names:
            first, _, end = name.partition(".")[0].partition("-")
            if where(int(first), int(end)):
                storage.delete(f"{directory}/{day}/{name}")


def _write(storage: Storage, manifest: Manifest) -> None:
    name = f"{partition_path(manifest.topic, manifest.partition)}/{MANIFEST_FILE}"
    storage.replace(name, manifest.to_json())

"""The file systems that an archive may be on: a directory, or an object store that pyarrow knows.

In a directory, what is published is whole and on the disk before it has its name, and a lock serialises the
changes of a partition. An object store has neither rename nor lock: an object appears as a whole when its
upload ends, the manifest is uploaded after the files that it lists, and only one archiver may write.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkstemp

import pyarrow as pa
from pyarrow import fs

from feature_store.archive.layout import ArchiveError

_LOCK = "_lock"
_UMASK = os.umask(0)
os.umask(_UMASK)
_NEW = "_new-"
"""Beginning of the names of files that are being written; their writers hold a lock on them."""


@contextmanager
def named_faults(place: str) -> Iterator[None]:
    """Turn the file system's errors within a block into an ArchiveError that names the archive."""
    try:
        yield
    except OSError as fault:
        reason = " ".join(str(fault).split())
        raise ArchiveError(
            f"the archive {place} cannot be used ({reason}); check the storage and its room, then repeat"
        ) from fault


class Storage:
    """The files below one directory, by names relative to it."""

    def __init__(self, place: str) -> None:
        """Open a directory; nothing is created.

        Args:
            place: a path, or a URI as pyarrow's file systems have, such as s3://bucket/archive.

        Raises:
            ArchiveError: no file system is known by this URI.
        """
        try:
            self._fs, self._root = fs.FileSystem.from_uri(place if "://" in place else os.path.abspath(place))
        except (OSError, pa.ArrowException) as fault:
            raise ArchiveError(f"{place} cannot be opened ({fault}); give a directory or a URI") from None
        self.place = place
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none."""
        with named_faults(f"{self.place}/{name}"):
            try:
                with self.open(name) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    def open(self, name: str) -> pa.NativeFile:
        """Open a file for reading.

        Raises:
            FileNotFoundError: there is none.
        """
        return self._fs.open_input_file(f"{self._root}/{name}")

    def names(self, directory: str) -> list[str]:
        """Return the names directly below a directory, ascending; none if it does not exist."""
        selector = fs.FileSelector(f"{self._root}/{directory}".rstrip("/"), allow_not_found=True)
        with named_faults(self.place):
            return sorted(info.base_name for info in self._fs.get_file_info(selector))

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if there is none.

        Raises:
            ArchiveError: the storage cannot be used.
        """
        with named_faults(self.place):
            info = self._fs.get_file_info(f"{self._root}/{name}")
        return None if info.type is fs.FileType.NotFound else int(info.size)

    def has_files(self, directory: str) -> bool:
        """Return whether a directory has more than its lock and what writers have not published."""
        return any(name != _LOCK and not name.startswith(_NEW) for name in self.names(directory))

    @contextmanager
    def locked(self, directory: str) -> Iterator[None]:
        """Hold the lock of a directory, which is created; in an object store there is none."""
        if not self._is_local:
            yield
            return
        path = self._path(directory)
        _make_directory(path)
        with (path / _LOCK).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def new_file(self, directory: str) -> "NewFile":
        """Create a file that has no name in the archive until it is published.

        The caller holds the directory's lock, so that `delete_abandoned` does not see it before its writer
        has locked it.
        """
        new = NewFile(self._path(directory) if self._is_local else Path(gettempdir()))
        if not self._is_local:
            new.path.unlink()  # an open file needs no name, and a killed process then leaves none behind
        return new

    def publish(self, new: "NewFile", name: str) -> None:
        """Give a file that is on the disk its name; it replaces one that has it already."""
        if self._is_local:
            path = self._path(name)
            _make_directory(path.parent)
            new.path.rename(path)
            new.file.close()
            _sync_directory(path.parent)
            return
        new.file.seek(0)
        with self._fs.open_output_stream(f"{self._root}/{name}") as target:
            shutil.copyfileobj(new.file, target, 8 << 20)
        new.discard()

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file as a whole; the caller holds its directory's lock."""
        new = self.new_file(name.rpartition("/")[0])
        new.file.write(content)
        new.sync()
        self.publish(new, name)

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        with suppress(FileNotFoundError):
            self._fs.delete_file(f"{self._root}/{name}")

    def delete_abandoned(self, directory: str) -> None:
        """Delete the unpublished files of writers that have died."""
        for name in self.names(directory) if self._is_local else ():
            if name.startswith(_NEW):
                with suppress(FileNotFoundError), self._path(f"{directory}/{name}").open("rb") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        continue  # its writer lives
                    self.delete(f"{directory}/{name}")

    def _path(self, name: str) -> Path:
        return Path(self._root, name)


class NewFile:
    """A local file that is being written; its lock is released when its writer ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        descriptor, path = mkstemp(prefix=_NEW, dir=directory)
        self.path, self.file = Path(path), os.fdopen(descriptor, "w+b")
        fcntl.flock(self.file, fcntl.LOCK_EX)
        os.fchmod(descriptor, 0o666 & ~_UMASK)

    def sync(self) -> None:
        """Write everything to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def discard(self) -> None:
        """Delete the file."""
        self.file.close()
        self.path.unlink(missing_ok=True)


def _make_directory(path: Path) -> None:
    """Create a directory, if it is missing, with its missing parents; their names are then on the disk."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for directory in missing:
        _sync_directory(directory.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

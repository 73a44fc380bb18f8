"""Files that commands write: their places are checked before long work, and each is written whole or not."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feature_store.errors import FraudError

PARTS = "part-*.parquet"
"""Names of the files in a directory that a training set on Spark is."""


class OutputError(FraudError):
    """A file that a command is to write exists, or cannot be written.

    Use another name or `--force`, make the directory, or free disk space.
    """


def require_place(*files: Path | None) -> None:
    """Check, before a command works for long, that its files can be written; None: there is no such file.

    Raises:
        OutputError: one cannot.
    """
    for to in files:
        if to is not None and (to.is_dir() or not os.access(to if to.exists() else to.parent, os.W_OK)):
            raise OutputError(f"{to} cannot be written; give a writable place with room")


@contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """Yield a temporary path beside `output`; rename it to `output` at the end, or remove it on an error.

    A directory is replaced only if a training set on Spark may have written all that is in it.

    Raises:
        OutputError: no such directory, no permission, or the disk is full; or other files would be lost.
    """
    import pyarrow as pa

    part = output.with_name(output.name + ".part")
    _require_own(output)
    try:
        _remove(part)  # a killed run may have left one
        yield part
        _require_own(output)
        _remove(output)
        part.replace(output)
    except (OSError, pa.ArrowException) as error:
        raise OutputError(f"cannot write {output} ({error}); give a writable place with room") from error
    finally:
        _remove(part)


def _require_own(output: Path) -> None:
    """Raise OutputError if `output` is a directory with files that no training set has."""
    if output.is_dir() and set(output.iterdir()) - set(output.glob(PARTS)):
        raise OutputError(f"{output} is a directory with other files, which would be lost; give another name")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

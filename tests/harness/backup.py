"""A backup of a checkpoint, taken as docs/operations.md describes."""

import shutil
from contextlib import suppress
from pathlib import Path


def back_up(source: Path, target: Path) -> None:
    """Copy a checkpoint: first Spark's two logs of epochs, then the rest, with the states that they name."""
    target.mkdir()
    for name in ("commits", "offsets"):
        _copy(source / name, target / name)
    for each in source.iterdir():
        if each.name not in ("commits", "offsets"):
            _copy(each, target / each.name)


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a directory without the files that are deleted meanwhile."""
    if source.is_dir():
        target.mkdir()
        for each in source.iterdir():
            _copy(each, target / each.name)
    else:
        with suppress(FileNotFoundError):
            shutil.copy2(source, target)

"""A backup of a checkpoint, as docs/operations.md says how to take it."""

import shutil
from contextlib import suppress
from pathlib import Path


def back_up(source: Path, target: Path) -> None:
    """Copy a checkpoint: the log of ended epochs before the states that it names."""
    target.mkdir()
    for name in ("commits", "offsets"):
        _copy(source / name, target / name)
    for each in source.iterdir():
        if each.name not in ("commits", "offsets"):
            _copy(each, target / each.name)


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a directory; files that vanish meanwhile are left out."""
    if source.is_dir():
        target.mkdir()
        for each in source.iterdir():
            _copy(each, target / each.name)
    else:
        with suppress(FileNotFoundError):
            shutil.copy2(source, target)

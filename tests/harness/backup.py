"""A backup of a checkpoint, as docs/operations.md says how to take it."""

import shutil
from pathlib import Path


def back_up(source: Path, target: Path) -> None:
    """Copy a checkpoint: the log of ended epochs before the states that it names."""
    target.mkdir()
    for name in ("commits", "offsets"):
        shutil.copytree(source / name, target / name)
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("commits", "offsets"))

"""Files that processes share: a lock, and JSON that is replaced as a whole."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from feature_store.errors import FraudError


@contextmanager
def locked(path: Path, error: type[FraudError], on_busy: Callable[[], None]) -> Iterator[None]:
    """Hold a lock file; its directory is created.

    Args:
        error: raised if the file cannot be created.
        on_busy: called before the wait if another process holds the lock; may raise to avoid the wait.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as cause:
        raise error(f"cannot write to {path.parent} ({cause}): choose another --data-dir") from cause
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_busy()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a JSON file atomically."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    temporary.replace(path)

"""The progress of a replay: a file that `fraud replay start` replaces while it runs, and the sidecar reads.

It is `progress.json` in the replay's directory, beside the replay's record.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from feature_store.errors import FraudError

FILE = "progress.json"
SILENT_MS = 60_000
"""Age of the file of a replay that runs after which it counts as silent; it is replaced twice a second, but
not while the brokers do not answer."""


class ReplayProgressError(FraudError):
    """The progress of replays cannot be read.

    Give the sidecar the permission to read the files that the message names.
    """


class State(StrEnum):
    """What a replay does."""

    RUNNING = "running"
    WAITING = "waiting"
    """It waits for the live job, which is behind or slow."""
    STOPPED = "stopped"
    """`fraud replay start` was stopped before the end of the range."""
    DONE = "done"
    FAILED = "failed"
    SILENT = "silent"
    """It was running or waiting, but has written nothing for SILENT_MS: it was killed, or the brokers do not
    answer. Never in a file."""


@dataclass(frozen=True)
class Progress:
    """The progress of a replay."""

    name: str
    state: State
    written_at: int
    """Ms since 1970-01-01 UTC."""
    remaining: int
    """Offsets of the transactions from where it is to the end of its range."""
    per_s: float
    """Transactions per second since the first decision of this run; 0.0 before it."""
    positions: Mapping[str, int]
    """Offset up to which each partition of the transactions is decided."""
    ends: Mapping[str, int]
    """End of the range, by partition."""
    error: str = ""
    """Why it failed."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end of the range at this speed; None if it is not running, or no speed is known."""
        if self.state is not State.RUNNING or not self.per_s:
            return None
        return self.remaining / self.per_s

    def seen_at(self, now_ms: int) -> "Progress":
        """Return it as it is to be shown at a time: `silent` if its writer may have died."""
        is_silent = self.state in (State.RUNNING, State.WAITING) and now_ms - self.written_at > SILENT_MS
        return replace(self, state=State.SILENT) if is_silent else self


def read(directory: Path) -> Progress | None:
    """Return the progress in a replay's directory; None before its first run.

    Raises:
        ReplayProgressError: it cannot be read.
    """
    file = directory / FILE
    try:
        fields = json.loads(file.read_text())
        return Progress(**{**fields, "state": State(fields["state"])})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError) as fault:
        raise ReplayProgressError(f"{file} cannot be read ({fault}); check its permissions") from fault


def read_all(work_dir: Path) -> list[Progress]:
    """Return the progress of all replays with this work directory, by name.

    Raises:
        ReplayProgressError: it cannot be read.
    """
    directory = work_dir / "replays"
    try:
        # not glob, which would pass over a directory that must not be read
        names = sorted(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as fault:
        raise ReplayProgressError(f"{directory} cannot be read ({fault}); check its permissions") from fault
    return [progress for name in names if (progress := read(directory / name)) is not None]

"""demo.json: what a demo must know about the one before it in its directory, above all if that was killed."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deploy.demo.options import DemoError, Options
from deploy.local import stack
from deploy.local.processes import Server

FILE, LOCK = "demo.json", "demo.lock"
LOCKS = {LOCK, "lock"}
"""Ours and the stack's."""


@dataclass
class Run:
    """One run's memory, written at every step that a later start must know of."""

    story: dict[str, Any]
    """Options that must stay the same: `Options.story`."""
    begun: float
    """Wall clock of the first start, seconds since 1970-01-01 UTC."""
    finished: bool = False
    """It was verified; there is nothing left to continue."""
    profiles_loaded: bool = False
    """The profiles have been written to Postgres once; from then on only changes are."""
    champion: bool = False
    """A model was trained, registered and rolled out."""
    restarts: int = 0
    """How often it was continued."""
    children: dict[str, Server] = field(default_factory=dict)
    """Processes of the demo by name; they may have ended since."""

    def save(self, data_dir: Path) -> None:
        """Replace the recorded state in one step."""
        fresh = data_dir / (FILE + ".new")
        fresh.write_text(json.dumps(asdict(self), indent=2) + "\n")
        fresh.replace(data_dir / FILE)


def load(data_dir: Path) -> Run | None:
    """What the last demo left; None where there was none.

    Raises:
        DemoError: the file is damaged.
    """
    try:
        raw = json.loads((data_dir / FILE).read_text())
        raw["children"] = {name: Server(**server) for name, server in raw["children"].items()}
        return Run(**raw)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DemoError(f"{data_dir / FILE} is damaged; start with --fresh") from error


@contextmanager
def exclusive(data_dir: Path) -> Iterator[None]:
    """Keeps a second demo off the same directory.

    Raises:
        DemoError: one works there, or the directory cannot be written.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DemoError(f"cannot write to {data_dir} ({error}); choose another --data-dir") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise DemoError(f"another demo works on {data_dir}; end it, or choose another --data-dir") from None
    finally:
        os.close(descriptor)


def clear(data_dir: Path) -> None:
    """Stop what still runs on a data directory and empty it.

    Raises:
        DemoError: it holds something that no demo made.
    """
    names = {entry.name for entry in data_dir.iterdir()} - LOCKS
    if names and FILE not in names:
        raise DemoError(f"{data_dir} was not made by a demo; choose another --data-dir")
    if not names:
        return
    stack.down(data_dir)
    # the state goes last: a kill in the middle leaves a directory that is still known as a demo's
    for name in sorted(names - {FILE}):
        entry = data_dir / name
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    (data_dir / FILE).unlink()


def differences(run: Run, options: Options) -> list[str]:
    """Options that differ from those of the run that is to be continued, in words."""
    return [
        f"--{name} {run.story.get(name)}, not {wanted}"
        for name, wanted in options.story().items()
        if run.story.get(name, False if name == "rollouts" else None) != wanted
    ]

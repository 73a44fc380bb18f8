"""demo.json: the recorded state of a demo, from which a killed demo is continued."""

import json
import shutil
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deploy.demo.options import DemoError, Options
from deploy.local import stack
from deploy.local.files import locked, replace_json
from deploy.local.processes import Server

FILE, LOCK = "demo.json", "demo.lock"
LOCKS = {LOCK, "lock"}
"""Lock files of the demo and of the stack."""


@dataclass
class Run:
    """Recorded state of one run, saved at every step that a later start depends on."""

    data_dir: Path
    """Directory of all files of the demo; not stored."""
    story: dict[str, Any]
    """Options that a continued run must not change: `Options.story`."""
    begun: float
    """Wall clock of the first start, seconds since 1970-01-01 UTC."""
    finished: bool = False
    """Whether the audit is done; a finished run is not continued."""
    profiles_loaded: bool = False
    """Whether the profiles have been loaded into Postgres."""
    champion: bool = False
    """Whether a model was trained, registered and rolled out."""
    restarts: int = 0
    """How often the run was continued."""
    children: dict[str, Server] = field(default_factory=dict)
    """Processes of the demo by name; they may have ended since."""

    def save(self) -> None:
        """Replace the recorded state atomically."""
        stored = asdict(self)
        del stored["data_dir"]
        replace_json(self.data_dir / FILE, stored)


def load(data_dir: Path) -> Run | None:
    """Load the state of the last demo; None if there was none.

    Raises:
        DemoError: the file is damaged.
    """
    try:
        raw = json.loads((data_dir / FILE).read_text())
        raw["children"] = {name: Server(**server) for name, server in raw["children"].items()}
        return Run(data_dir, **raw)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DemoError(f"{data_dir / FILE} is damaged; start with --fresh") from error


def exclusive(data_dir: Path) -> AbstractContextManager[None]:
    """Lock the directory against a second demo.

    Raises:
        DemoError: another demo runs there, or the directory cannot be written.
    """

    def refuse() -> None:
        raise DemoError(f"another demo runs in {data_dir}; stop it, or choose another --data-dir")

    return locked(data_dir / LOCK, DemoError, refuse)


def clear(data_dir: Path) -> None:
    """Stop the servers of a data directory, and remove everything in it but the lock files.

    Raises:
        DemoError: the directory was not made by a demo.
    """
    names = {entry.name for entry in data_dir.iterdir()} - LOCKS
    if names and FILE not in names:
        raise DemoError(f"{data_dir} was not made by a demo; choose another --data-dir")
    if not names:
        return
    stack.down(data_dir)
    # demo.json is removed last: after a kill in the middle the directory is still recognised as a demo's
    for name in sorted(names - {FILE}):
        entry = data_dir / name
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    (data_dir / FILE).unlink()


def differences(run: Run, options: Options) -> list[str]:
    """List the options that differ from those of the run to continue, as text."""
    return [
        f"--{name.replace('_', '-')} {run.story.get(name)}, not {wanted}"
        for name, wanted in options.story().items()
        if run.story.get(name) != wanted
    ]

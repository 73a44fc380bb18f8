"""stack.json: the recorded ports and servers of a stack, shared by all its commands."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from deploy.local.console import Progress, silent
from deploy.local.errors import StackError
from deploy.local.files import locked, replace_json
from deploy.local.processes import Server

FILE = "stack.json"

Service = Literal["postgres", "kafka", "kafka2", "kafka3", "connect"]

ALL: tuple[Service, ...] = ("postgres", "kafka", "connect")
"""The services of a stack with one broker."""
BROKERS: tuple[Service, ...] = ("kafka", "kafka2", "kafka3")
"""All brokers that a stack can have, each with a controller. The recorded ports tell which it has."""


def brokers_of(ports: Mapping[str, int]) -> tuple[Service, ...]:
    """Return the brokers that have a port."""
    return tuple(name for name in BROKERS if name in ports)


@dataclass
class State:
    """Recorded state of the stack of one data directory."""

    ports: dict[str, int] = field(default_factory=dict)
    """Listening ports by name; kept after `down`, so that the next start uses them again."""
    servers: dict[Service, Server] = field(default_factory=dict)
    """Servers that were started and not stopped, by service; they may have died since."""


def load(data_dir: Path) -> State:
    """Load the recorded state; an empty one if there is none.

    Raises:
        StackError: the file is damaged.
    """
    try:
        raw = json.loads((data_dir / FILE).read_text())
        servers = {name: Server(**server) for name, server in raw["servers"].items()}
        return State(ports=raw["ports"], servers=servers)
    except FileNotFoundError:
        return State()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StackError(
            f"{data_dir / FILE} is damaged: delete it and start again; no data is lost"
        ) from error


def save(data_dir: Path, state: State) -> None:
    """Replace the recorded state atomically."""
    replace_json(data_dir / FILE, asdict(state))


def exclusive(data_dir: Path, progress: Progress = silent) -> AbstractContextManager[None]:
    """Lock the stack: other commands that start or stop it wait."""
    return locked(
        data_dir / "lock", StackError, lambda: progress(f"waiting for another command on {data_dir}")
    )

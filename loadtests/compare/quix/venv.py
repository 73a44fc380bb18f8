"""Quix Streams in a virtual environment of its own: it wants other versions than the project's."""

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

from deploy.local.console import Progress, silent
from loadtests.compare.errors import CompareError

LOCK_FILE = Path(__file__).with_name("requirements.lock")
STAMP = "installed"


def ensure(directory: Path, progress: Progress = silent) -> Path:
    """The Python that has what requirements.lock names; several processes may call it at once.

    Args:
        directory: where environments are kept, one for each lock.
        progress: told about what takes long.

    Raises:
        CompareError: it cannot be installed.
    """
    digest = hashlib.sha256(sys.version.encode() + LOCK_FILE.read_bytes()).hexdigest()[:12]
    home = directory / f"quix-{digest}"
    python = home / "bin" / "python"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / STAMP).exists():
            progress("installing Quix Streams, once")
            _run([sys.executable, "-m", "venv", "--clear", str(home)])
            _run(
                [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--no-deps",
                 "--only-binary", ":all:", "--require-hashes", "-r", str(LOCK_FILE)]
            )  # fmt: skip
            (home / STAMP).touch()
    return python


def _run(command: list[str]) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        reason = (answer.stdout + answer.stderr).strip().splitlines()[-1:] or ["no reason given"]
        raise CompareError(
            f"Quix Streams cannot be installed ({reason[0]}): connect this machine to the network"
        )

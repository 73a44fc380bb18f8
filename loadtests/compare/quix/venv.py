"""A separate virtual environment for Quix Streams, which needs other package versions than the project."""

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
    """Return a Python with the packages of requirements.lock; safe to call from several processes.

    Args:
        directory: directory of the environments, one per lock file and Python version.
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
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        reason = (result.stdout + result.stderr).strip().splitlines()[-1:] or ["no reason given"]
        raise CompareError(f"Quix Streams cannot be installed ({reason[0]}): check the network connection")

"""Makes .venv from requirements.lock: `python3 -m deploy.local.setup_venv`. Standard library only.

A stamp in .venv holds the digest of everything that the environment was made from; while it fits, nothing
is done.
"""

import fcntl
import hashlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deploy.local import preflight
from deploy.local.console import Progress, to_stderr
from feature_store.errors import FraudError

STAMP = "card-fraud.stamp"

CAUSES = (
    (r"No space left on device", "the disk is full: make room and run make again"),
    (
        r"NewConnectionError|name resolution|Network is unreachable|ConnectTimeout|ReadTimeout|ProxyError"
        r"|SSLError|No matching distribution found",
        "no package index is reachable: connect to the network, or point pip at your mirror (pip config)",
    ),
    (
        r"DO NOT MATCH THE HASHES|hashes are required",
        "a package is not the one that requirements.lock names: check the mirror it came from",
    ),
)
"""What pip prints, and what that means for the operator."""


class SetupError(FraudError):
    """The virtual environment could not be made."""


def ensure(root: Path, progress: Progress) -> None:
    """Brings .venv to what requirements.lock and pyproject.toml say; several processes may call it at once.

    Raises:
        FraudError: something is missing on this machine, or pip failed.
    """
    (root / ".fraud").mkdir(exist_ok=True)
    with (root / ".fraud" / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        venv = root / ".venv"
        stamp = venv / STAMP
        wanted = fingerprint(root)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        preflight.check(root, setup=True)
        stamp.unlink(missing_ok=True)
        _install(root, venv, progress)
        stamp.write_text(wanted)


def fingerprint(root: Path) -> str:
    """Digest of the Python in use, the lock, the project's description and where the checkout lies."""
    digest = hashlib.sha256(f"{sys.version} {root}".encode())
    for name in ("requirements.lock", "pyproject.toml"):
        digest.update(hashlib.sha256((root / name).read_bytes()).digest())
    return digest.hexdigest()


def explain(output: str) -> str:
    """One line on why pip failed, from what it printed."""
    for pattern, meaning in CAUSES:
        if re.search(pattern, output):
            return meaning
    errors = [line for line in output.splitlines() if line.lstrip().lower().startswith("error")]
    lines = errors or output.strip().splitlines() or ["it printed nothing"]
    return f"{lines[-1].strip()} (run `make setup` again to see whether it lasts)"


def _install(root: Path, venv: Path, progress: Progress) -> None:
    if not _usable(venv):
        progress("making the virtual environment .venv")
        _run([sys.executable, "-m", "venv", "--clear", str(venv)])
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--no-input", "--disable-pip-version-check",
           "--progress-bar", "off", "--no-deps", "--no-build-isolation", "--no-compile"]  # fmt: skip
    entries = re.findall(r"^\S+==(?:.*\\\n)*.*\n?", (root / "requirements.lock").read_text(), re.MULTILINE)
    # PySpark comes as source: what builds it must be there before, and be the locked one
    tools = [entry for entry in entries if entry.startswith("setuptools==")]
    if not tools:
        raise SetupError("requirements.lock does not name setuptools: restore the file from the repository")
    with tempfile.TemporaryDirectory() as scratch:
        _run([*pip, "--require-hashes", "-r", _written(scratch, "tools", tools)])
        progress(f"installing {len(entries)} packages, about a minute with a fast network")
        # pip works with one processor, so there are two of it
        halves = [_written(scratch, f"half-{number}", entries[number::2]) for number in range(2)]
        told = Told(progress, len(entries))
        with ThreadPoolExecutor(len(halves)) as pool:
            runs = [
                pool.submit(_run, [*pip, "--use-pep517", "--require-hashes", "-r", half], told)
                for half in halves
            ]
        for run in runs:
            run.result()
    progress("installing the project itself")
    _run([*pip, "--quiet", "--editable", str(root)])
    progress("compiling the packages")
    # pip would do it with one processor, and compile the packages' own tests; a file that this Python cannot
    # compile is a template or for another one
    compiling = [str(venv / "bin" / "python"), "-m", "compileall", "-qq", "-j", "0", "-x", "/tests?/"]
    subprocess.run([*compiling, str(venv / "lib")], check=False)
    progress("the virtual environment is complete")


def _written(directory: str, name: str, entries: Sequence[str]) -> str:
    """A requirements file of some entries of the lock."""
    path = Path(directory, f"{name}.txt")
    path.write_text("".join(entries))
    return str(path)


def _usable(venv: Path) -> bool:
    """Whether .venv is whole and belongs to this Python."""
    config, version = venv / "pyvenv.cfg", ".".join(map(str, sys.version_info[:3]))
    return (venv / "bin" / "pip").exists() and f"version = {version}\n" in config.read_text()


class Told:
    """Tells every few seconds how far the runs of pip are, all together."""

    def __init__(self, progress: Progress, packages: int) -> None:
        """Nothing is installed yet."""
        self._progress, self._packages = progress, packages
        self._seen, self._told_at = 0, time.monotonic()
        self._lock = threading.Lock()

    def line(self, line: str) -> None:
        """A line that one of them printed."""
        with self._lock:
            self._seen += line.startswith("Collecting ")
            is_due = time.monotonic() - self._told_at >= 3
            if line.startswith("Installing"):
                self._progress("unpacking, the longest step")
            elif line.startswith("Building") or (is_due and line.startswith("Collecting")):
                self._progress(f"{self._seen} of {self._packages} packages; {line.split(' (')[0].strip()}")
                self._told_at = time.monotonic()


def _run(command: Sequence[str], told: Told | None = None) -> None:
    """Runs pip or venv."""
    output: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            output.append(line)
            if told is not None:
                told.line(line)
    if running.returncode != 0:
        raise SetupError(f"cannot make the virtual environment: {explain(''.join(output))}")


def main() -> None:
    """Makes or updates .venv of the checkout in the working directory."""
    try:
        ensure(Path.cwd(), to_stderr())
    except FraudError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: the next run goes on")


if __name__ == "__main__":
    main()

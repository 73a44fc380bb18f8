"""Create .venv from requirements.lock: `python3 -m deploy.local.setup_venv`. Standard library only.

A stamp file in .venv has the digest of all inputs of the environment; while it matches, nothing is done.
"""

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deploy.local import launch, preflight
from deploy.local.console import Progress, to_stderr
from feature_store.errors import FraudError

STAMP = "card-fraud.stamp"
BUILD = """
[bdist_wheel]
compression = stored
"""
"""Settings of setuptools: no compression, because PySpark's wheel is unpacked right after it is built, and to
compress it would take ten seconds."""

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
"""Pattern in pip's output -> cause and remedy for the operator."""


class SetupError(FraudError):
    """The virtual environment could not be created.

    Check disk and network.
    """


def ensure(root: Path, progress: Progress) -> None:
    """Create or update .venv from requirements.lock and pyproject.toml; safe in several processes at once.

    Raises:
        FraudError: this machine lacks a requirement, requirements.lock lacks setuptools, or venv or pip
            failed.
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
    """Compute a digest of the Python version, requirements.lock, pyproject.toml and the checkout's path."""
    digest = hashlib.sha256(f"{sys.version} {root}".encode())
    for name in ("requirements.lock", "pyproject.toml"):
        digest.update(hashlib.sha256((root / name).read_bytes()).digest())
    return digest.hexdigest()


def explain(output: str) -> str:
    """Explain in one line, from pip's output, why it failed."""
    for pattern, meaning in CAUSES:
        if re.search(pattern, output):
            return meaning
    errors = [line for line in output.splitlines() if line.lstrip().lower().startswith("error")]
    lines = errors or output.strip().splitlines() or ["it printed nothing"]
    return f"{lines[-1].strip()} (run `make setup` again to see whether the error persists)"


def _install(root: Path, venv: Path, progress: Progress) -> None:
    if not _usable(venv):
        progress("making the virtual environment .venv")
        _run([sys.executable, "-m", "venv", "--clear", str(venv)])
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--no-input", "--disable-pip-version-check",
           "--progress-bar", "off", "--no-deps", "--no-build-isolation", "--no-compile"]  # fmt: skip
    entries = re.findall(r"^\S+==(?:.*\\\n)*.*\n?", (root / "requirements.lock").read_text(), re.MULTILINE)
    # PySpark is a source distribution: its build tool must be installed first, in the locked version
    tools = [entry for entry in entries if entry.startswith("setuptools==")]
    if not tools:
        raise SetupError("requirements.lock does not name setuptools: restore the file from the repository")
    with tempfile.TemporaryDirectory() as scratch:
        build = {**os.environ, "DIST_EXTRA_CONFIG": _written(scratch, "build.cfg", BUILD)}
        _run([*pip, "--require-hashes", "-r", _written(scratch, "tools.txt", "".join(tools))])
        progress(f"installing {len(entries)} packages, about a minute with a fast network")
        # several runs of pip, because one uses one processor and awaits the index's answers one by one
        parts = [
            _written(scratch, f"part-{number}.txt", "".join(part))
            for number, part in enumerate(_parts(entries))
        ]
        install_progress = InstallProgress(progress, len(entries))
        installing = [*pip, "--use-pep517", "--require-hashes", "-r"]
        with ThreadPoolExecutor() as pool:
            runs = [pool.submit(_run, [*installing, part], install_progress, build) for part in parts]
            runs.append(pool.submit(_run, [*pip, "--quiet", "--editable", str(root)]))
        for run in runs:
            run.result()
    progress("compiling the packages")
    # pip would use one processor, and compile the packages' own tests, too; errors are ignored, because files
    # that do not compile are templates or for another Python version
    compiling = [str(venv / "bin" / "python"), "-m", "compileall", "-qq", "-j", "0", "-x", "/tests?/"]
    subprocess.run([*compiling, str(venv / "lib")], check=False)
    progress("the virtual environment is complete")


def _parts(entries: Sequence[str]) -> list[list[str]]:
    """Divide the locked packages among runs of pip: PySpark, which takes longest, and the others in three.

    Packages of one family stay together: some, as mlflow and mlflow-skinny, share files.
    """
    families = list(dict.fromkeys(family for entry in entries if (family := _family(entry)) != "pyspark"))
    parts = [{"pyspark"}, *(set(families[number::3]) for number in range(3))]
    return [[entry for entry in entries if _family(entry) in part] for part in parts]


def _family(entry: str) -> str:
    """Return the first word of a package's name."""
    return re.split(r"[-=]", entry, maxsplit=1)[0]


def _written(directory: str, name: str, text: str) -> str:
    """Write a file of settings or requirements for pip, and return its path."""
    path = Path(directory, name)
    path.write_text(text)
    return str(path)


def _usable(venv: Path) -> bool:
    """Return whether .venv has pip and belongs to this version of Python."""
    config, version = venv / "pyvenv.cfg", ".".join(map(str, sys.version_info[:3]))
    return (venv / "bin" / "pip").exists() and f"version = {version}\n" in config.read_text()


class InstallProgress:
    """Progress of all runs of pip together, reported every few seconds."""

    def __init__(self, progress: Progress, packages: int) -> None:
        """Start with no package installed."""
        self._progress, self._packages = progress, packages
        self._count, self._reported_at = 0, time.monotonic()
        self._lock = threading.Lock()

    def line(self, line: str) -> None:
        """Process a line of pip's output."""
        with self._lock:
            self._count += line.startswith("Collecting ")
            is_due = time.monotonic() - self._reported_at >= 3
            if line.startswith("Installing"):
                self._progress("unpacking, the longest step")
            elif line.startswith("Building") or (is_due and line.startswith("Collecting")):
                self._progress(f"{self._count} of {self._packages} packages; {line.split(' (')[0].strip()}")
                self._reported_at = time.monotonic()


def _run(
    command: Sequence[str],
    install_progress: InstallProgress | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run pip or venv."""
    output: list[str] = []

    def each(line: str) -> None:
        output.append(line)
        if install_progress is not None:
            install_progress.line(line)

    if launch.run(command, each, environment) != 0:
        raise SetupError(f"cannot create the virtual environment: {explain(''.join(output))}")


def main() -> None:
    """Create or update .venv of the checkout in the working directory."""
    try:
        ensure(Path.cwd(), to_stderr())
    except FraudError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: run the same command again to continue")


if __name__ == "__main__":
    main()

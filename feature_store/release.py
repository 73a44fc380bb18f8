"""The release of the running code: the distribution's version and a digest of the sources that decide."""

import hashlib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

DISTRIBUTION = "card-fraud"
DECIDING = ("feature_store", "models", "streaming_job")
"""Packages on which decisions depend."""
SOURCES = (".py", ".json")
_ROOT = Path(__file__).parents[1]


def version() -> str:
    """Return the version of the installed distribution; "unreleased" if there is none."""
    try:
        return installed_version(DISTRIBUTION)
    except PackageNotFoundError:  # run from a source tree
        return "unreleased"


def sources_digest(packages: Iterable[str], root: Path = _ROOT) -> str:
    """Return the SHA-256 over the sources of packages: paths and contents, the same on every machine."""
    digest = hashlib.sha256()
    for package in sorted(packages):
        files = {path.relative_to(root).as_posix(): path for path in (root / package).rglob("*")}
        for name, path in sorted(files.items()):
            if path.suffix in SOURCES:
                content = path.read_bytes()
                digest.update(f"{name}\x00{len(content)}\x00".encode())
                digest.update(content)
    return digest.hexdigest()


# read at import: sources that change while the process runs are not those that decide in it
RELEASE = f"{version()}+{sources_digest(DECIDING)[:8]}"
"""The release, for example 0.1.0+3f2a9c1e: part of alerts, progress records and the headers of all output."""

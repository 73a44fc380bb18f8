"""`njit` for this project's kernels, with a compile cache that depends on all their sources.

Numba's own cache depends only on the file of the compiled function: if a constant in another file changed,
old machine code would still be used. So the cache directory, in the user's cache folder, is named
by a digest of numba's version, the sources of all modules with kernels, and those of the project's modules
that these import. A release that changes one of them starts with an empty cache. If NUMBA_CACHE_DIR is set,
numba uses that directory instead, without the digest.
"""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba

njit: Any = numba.njit
"""Untyped on purpose: inside kernels numba's types apply."""


_PROJECT = Path(__file__).parents[1]
_PACKAGES = ("feature_store", "models", "streaming_job")
_IMPORT = re.compile(
    rb"^from ((?:feature_store|models|streaming_job)[.\w]*) import (\([^)]*\)|.+)", re.MULTILINE
)


def _modules() -> dict[str, bytes]:
    return {
        ".".join(path.relative_to(_PROJECT).with_suffix("").parts): path.read_bytes()
        for package in _PACKAGES
        for path in (_PROJECT / package).rglob("*.py")
    }


def _kernel_sources() -> dict[str, bytes]:
    """Read the sources of all modules with kernels and of the project modules that they import."""
    modules = _modules()
    pending = [name for name, source in modules.items() if b"feature_store.jit" in source]
    sources: dict[str, bytes] = {}
    while pending:
        name = pending.pop()
        if name in modules and name not in sources:
            sources[name] = modules[name]
            for module, names in _IMPORT.findall(modules[name]):
                pending.append(module.decode())
                pending += [f"{module.decode()}.{item}" for item in re.findall(r"\w+", names.decode())]
    return sources


def _sources_digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for _, source in sorted(_kernel_sources().items()):
        digest.update(source)
    return digest.hexdigest()[:16]


CACHE: Path | None = None
"""The cache directory of this release; None if NUMBA_CACHE_DIR names another one."""
if "NUMBA_CACHE_DIR" not in os.environ:
    _base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    CACHE = _base / "card-fraud" / "kernels" / _sources_digest()
    numba.config.CACHE_DIR = str(CACHE)  # type: ignore[attr-defined]
    with suppress(OSError):  # it does not exist yet
        os.utime(CACHE)  # a start of the job removes caches that were not used for long

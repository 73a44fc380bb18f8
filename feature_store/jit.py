"""`njit` for this project's kernels, with a compile cache that knows all their sources.

Numba's own cache looks only at the file of the compiled function: a constant that changes in another file
would leave old machine code in use. So the cache lies in a directory named by a digest of all sources that
kernels are made of, per user, and a release that changes one starts with a new one.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import numba

njit: Any = numba.njit
"""Untyped on purpose: inside a kernel, numba's types rule."""


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
    """Sources of the modules with kernels and of what they import here; others change without a compile."""
    every = _modules()
    todo = [name for name, source in every.items() if b"feature_store.jit" in source]
    found: dict[str, bytes] = {}
    while todo:
        name = todo.pop()
        if name in every and name not in found:
            found[name] = every[name]
            for module, names in _IMPORT.findall(every[name]):
                todo.append(module.decode())
                todo += [f"{module.decode()}.{one}" for one in re.findall(r"\w+", names.decode())]
    return found


def _sources_digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for _, source in sorted(_kernel_sources().items()):
        digest.update(source)
    return digest.hexdigest()[:16]


if "NUMBA_CACHE_DIR" not in os.environ:
    _base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    numba.config.CACHE_DIR = str(_base / "card-fraud" / "kernels" / _sources_digest())  # type: ignore[attr-defined]

"""The programs of a Kubernetes cluster, built from Go's modules once and kept in the user's cache."""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from deploy.local import jars

SOURCES = Path(__file__).with_name("components")
"""A Go module with a main package for each program; go.sum has the digest of every dependency."""
VERSION = "v1.34.4"
"""Of Kubernetes, as in go.mod."""
_VARIABLES = "k8s.io/component-base/version"


def build(go: str) -> Path:
    """Return the directory of the programs; build them first if this version of them is not in the cache.

    Args:
        go: path of the Go command.

    Raises:
        CalledProcessError: a module cannot be had, or does not compile.
    """
    compiler = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    digest = hashlib.sha256(compiler.encode())
    for path in sorted(path for path in SOURCES.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(SOURCES)).encode() + path.read_bytes())
    programs = jars.cache_directory().with_name("kubernetes") / digest.hexdigest()[:16]
    if not programs.exists():
        programs.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=programs.parent) as building:
            _build(go, Path(building))
            shutil.copytree(building, programs)
    return programs


def _build(go: str, directory: Path) -> None:
    major, minor, _ = VERSION.removeprefix("v").split(".")
    named = {"gitVersion": VERSION, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s", "-w", *(f"-X {_VARIABLES}.{name}={value}" for name, value in named.items())])
    command = ["nice", "-n", "5", "env", "CGO_ENABLED=0", go, "build", "-mod=readonly", "-trimpath"]
    subprocess.run([*command, "-ldflags", flags, "-o", directory, "./..."], cwd=SOURCES, check=True)

"""An archive of the classes that the job's JVM loads: a start maps them instead of reading and checking them.

Spark loads thousands of classes before its first batch, which takes seconds. Java takes an archive only if it
is its own and of the same class path; one that is missing or no longer fits costs time, nothing else.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from feature_store.errors import FraudError
from streaming_job.session import SPARK_HOME

QUERY = "streaming_job.archived_query"
"""A program of its own: a job's start has no use for what it imports."""
PATIENCE_S = 600


class ArchiveError(FraudError):
    """The archive cannot be made; the job runs without."""


def options(directory: Path, jars: Sequence[Path]) -> list[str]:
    """Options with which the JVM uses the archive; none if there is none.

    Args:
        directory: where archives are kept.
        jars: on the class path before Spark's.
    """
    archive = path(directory, jars)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def path(directory: Path, jars: Sequence[Path]) -> Path:
    """Where the archive of this Java and these jars is, or would be."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    spark = SPARK_HOME / "jars"
    digest = hashlib.sha256()
    # Java sees Spark's in the directory's own order, and looks at times in seconds
    for file in (java.resolve(), *jars, *(spark / name for name in os.listdir(spark))):
        status = file.stat() if file.exists() else None
        digest.update(f"{file} {status and (status.st_size, int(status.st_mtime))}\n".encode())
    return directory / f"classes-{digest.hexdigest()[:16]}.jsa"


def make(directory: Path, jars: Sequence[Path]) -> Path:
    """Make the archive, unless it is there; takes about a minute.

    Raises:
        ArchiveError: Java did not make it.
    """
    archive = path(directory, jars)
    if archive.exists():
        return archive
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            made = Path(scratch, archive.name)
            ended = subprocess.run(
                [sys.executable, "-m", QUERY, str(made), *map(str, jars)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, timeout=PATIENCE_S,
            )  # fmt: skip
            if ended.returncode or not made.exists():
                raise ArchiveError(f"no archive of classes was made; Java said: {ended.stdout[-2000:]}")
            made.rename(archive)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise ArchiveError(f"no archive of classes was made: {fault}") from fault
    return archive

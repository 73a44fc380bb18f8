"""Compilation of the Java sources against the pinned jars."""

import os
import subprocess
from pathlib import Path

from deploy.local import jars, java
from deploy.local.console import Progress, silent
from loadtests.compare.errors import CompareError

SOURCES = Path(__file__).with_name("src")


def compiler() -> Path | None:
    """Return the `javac` beside the `java` in use; None if only a runtime is installed."""
    javac = java.find().executable.resolve().with_name("javac")
    return javac if javac.exists() else None


def build(into: Path, progress: Progress = silent) -> str:
    """Compile the sources.

    Returns:
        The class path: classes and jars.
    """
    javac = compiler()
    if javac is None:
        raise CompareError(
            "there is no javac beside java: install a JDK, or leave Kafka Streams out (--only)"
        )
    archives = jars.class_path("streams", progress)
    into.mkdir(parents=True, exist_ok=True)
    sources = sorted(map(str, SOURCES.glob("*.java")))
    result = subprocess.run(
        [javac, "-Xlint:all,-classfile,-processing", "-Werror", "--release", "17", "-d", into,
         "-cp", archives, *sources],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode != 0:
        raise CompareError(f"the Java sources do not compile: {result.stderr.strip()[:2000]}")
    return os.pathsep.join((str(into), archives))

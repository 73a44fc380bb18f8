"""The Java runtime for Kafka, Connect and Spark."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import StackError

MINIMUM = 17
"""Lowest feature release that Spark 4 and Kafka 4 run on."""

INSTALL = f"install a JDK or JRE {MINIMUM} or newer and set JAVA_HOME or PATH"


@dataclass(frozen=True)
class Java:
    """One Java runtime."""

    executable: Path
    """The `java` command."""
    release: int
    """Feature release: 17, 21, 25 ..."""


def find() -> Java:
    """Find the Java of JAVA_HOME if that is set, else the one on PATH.

    Raises:
        StackError: there is no Java, it does not run or does not name its version, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        executable = Path(home) / "bin" / "java"
        if not os.access(executable, os.X_OK):
            raise StackError(
                f"JAVA_HOME is {home}, but {executable} is not a program: correct or unset JAVA_HOME"
            )
    else:
        on_path = shutil.which("java")
        if on_path is None:
            raise StackError(f"no Java found: {INSTALL}")
        executable = Path(on_path)
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StackError(f"{executable} does not run ({error}): {INSTALL}") from error
    release = parse_release(answer.stderr + answer.stdout)
    if release is None:
        raise StackError(f"{executable} -version names no version: {INSTALL}")
    if release < MINIMUM:
        raise StackError(f"{executable} is Java {release}, too old: {INSTALL}")
    return Java(executable, release)


def parse_release(text: str) -> int | None:
    """Parse the feature release from the output of `java -version`; 8 for "1.8.0_402"; None without one."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None

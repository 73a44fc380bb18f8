"""Start of child processes: with the fork server the only module that may construct `Popen` (ruff checks it).

Standard library only: it is also used before any package is installed.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deploy.local.errors import ProcessError

FRAUD = (sys.executable, "-m", "deploy.cli")
"""The command `fraud` of this process's packages."""
LOG_LIMIT = 16 * 1024 * 1024
"""Size in bytes from which a log is rotated (one generation) before the next start."""


def start(
    command: Sequence[str], log: Path, environment: Mapping[str, str], *, cwd: Path | None, own_session: bool
) -> "subprocess.Popen[bytes]":
    """Start a program that appends its output to `log`.

    Args:
        log: file for standard output and standard error; its directory is made.
        environment: all its variables.
        cwd: its working directory; None: that of this process.
        own_session: whether signals of the terminal, such as Ctrl-C, do not reach it.

    Raises:
        ProcessError: the command cannot be run.
    """
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > LOG_LIMIT:
            log.replace(log.with_suffix(".log.1"))
        with log.open("ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                cwd=cwd, env=dict(environment), start_new_session=own_session,
            )  # fmt: skip
    except OSError as error:
        raise ProcessError(f"cannot start {command[0]} ({error}): look into {log}") from error


def run(
    command: Sequence[str], each_line: Callable[[str], object], environment: Mapping[str, str] | None = None
) -> int:
    """Run a tool to its end, and call `each_line` with each line of its output at once; return its exit code.

    Args:
        each_line: gets a line of standard output or standard error, with its line end.
        environment: all its variables; None: those of this process.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as tool:
        assert tool.stdout is not None
        for line in tool.stdout:
            each_line(line)
    return tool.returncode


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log, indented; empty if there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join("    " + line for line in text.splitlines()[-lines:])

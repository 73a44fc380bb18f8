"""Check that this machine can run the project, before slow steps: `python3 -m deploy.local.preflight`.

Standard library only, in the syntax of Python 3.6: it runs before the virtual environment exists, and must
report an error on an old Python.
"""

import sys

OLDEST, NEWEST = (3, 11), (3, 14)
if sys.version_info < OLDEST:  # old versions must be able to read this file
    sys.exit(
        "error: this Python is too old, at least 3.11 is needed: install it, or name it: make PYTHON=PATH"
    )

import importlib.util  # noqa: E402
import shutil  # noqa: E402
from pathlib import Path  # noqa: E402

from deploy.local import java  # noqa: E402
from feature_store.errors import FraudError  # noqa: E402

GIB = 1024**3
SETUP_BYTES = 5 * GIB
"""Disk space for a setup: 1.8 GiB for the virtual environment (twice that while PySpark is built), plus jars
and data."""
RUN_BYTES = 1 * GIB


class PreflightError(FraudError):
    """This machine does not meet a requirement."""


def check(root: Path, *, setup: bool) -> None:
    """Check Python, Java and disk; takes a second at most.

    Args:
        setup: whether the virtual environment must still be created or updated.
    """
    check_python(setup=setup)
    java.find()
    check_disk(root, SETUP_BYTES if setup else RUN_BYTES)


def check_python(*, setup: bool, version: tuple[int, int] = sys.version_info[:2]) -> None:
    """Check that the locked packages support this Python, and that it has venv if a setup needs it."""
    if not OLDEST <= version <= NEWEST:
        raise PreflightError(
            f"this is Python {_dotted(version)}; the locked packages are for {_dotted(OLDEST)} to "
            f"{_dotted(NEWEST)}: install one of these, or name it: make PYTHON=PATH"
        )
    if setup:
        for module in ("venv", "ensurepip"):
            if importlib.util.find_spec(module) is None:
                raise PreflightError(
                    f"this Python lacks {module}: install it (Debian, Ubuntu: apt install python3-venv)"
                )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def check_disk(root: Path, needed: int) -> None:
    """Check that `needed` bytes are free."""
    free = shutil.disk_usage(root).free
    if free < needed:
        raise PreflightError(
            f"{free / GIB:.1f} GiB are free for {root}, {needed / GIB:.0f} GiB are needed: make room"
        )


def main() -> None:
    """Check the checkout in the working directory; print nothing if all requirements are met."""
    root = Path.cwd()
    try:
        check(root, setup=not (root / ".venv").exists())
    except FraudError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

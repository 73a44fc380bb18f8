"""Can this machine run the project? Answers before anything slow begins: `python3 -m deploy.local.preflight`.

Plain standard library, in a syntax that Python 3.6 still reads, because it runs before the virtual
environment exists and has to tell an old Python that it is too old.
"""

import sys

OLDEST, NEWEST = (3, 11), (3, 14)
if sys.version_info < OLDEST:  # this file is also read by what it refuses
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
"""The virtual environment takes 1.8 GiB, as much again while PySpark is built; archives and data the rest."""
RUN_BYTES = 1 * GIB


class PreflightError(FraudError):
    """This machine lacks something; the message says what to install or free."""


def check(root: Path, *, setup: bool) -> None:
    """Looks at Python, Java and disk; a second at most.

    Args:
        root: the checkout.
        setup: whether the virtual environment is still to be made.

    Raises:
        FraudError: the first thing that is missing.
    """
    check_python(setup=setup)
    java.find()
    check_disk(root, SETUP_BYTES if setup else RUN_BYTES)


def check_python(*, setup: bool, version: tuple[int, int] = sys.version_info[:2]) -> None:
    """The locked packages have wheels for some Pythons only; Debian ships venv apart."""
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
    """Enough room for what comes next."""
    free = shutil.disk_usage(root).free
    if free < needed:
        raise PreflightError(
            f"{free / GIB:.1f} GiB are free for {root}, {needed / GIB:.0f} GiB are needed: make room"
        )


def main() -> None:
    """Checks the checkout that lies in the working directory; prints nothing if all is well."""
    root = Path.cwd()
    try:
        check(root, setup=not (root / ".venv").exists())
    except FraudError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

"""The tables of docs/errors.md.

The docstring of an error, and the string below a reason, says what happened; its last paragraph, if it has
more than one, says what to do.
"""

import importlib
import inspect
import os
import pkgutil
from collections.abc import Iterable

from deploy.page_tables import docstrings, table, with_table
from feature_store.errors import ExitCode, FraudError
from service import problem_codes
from streaming_job.contracts import Reason

_PACKAGES = ("feature_store", "models", "streaming_job", "service", "loadtests", "deploy")


def page(text: str) -> str:
    """Return the text of docs/errors.md with regenerated tables."""
    texts = docstrings(Reason)
    reasons = _table("reason", ((f"`{reason.value}`", texts[reason.name]) for reason in Reason))
    errors = _table(
        "error",
        ((f"`{error.__name__}`, `{error.__module__}`", inspect.getdoc(error) or "") for error in _errors()),
    )
    text = with_table(text, "Exit codes", _exit_codes())
    text = with_table(text, "Dead letters", reasons)
    text = with_table(text, "Problems of the sidecar", problem_codes.TEXT)
    return with_table(text, "Errors", errors)


def _exit_codes() -> str:
    texts, answers = docstrings(ExitCode), {False: "no", True: "yes"}
    rows = ((code, texts[code.name], answers[code.may_restart]) for code in ExitCode)
    return table(("exit code", "meaning", "restart"), rows)


def _errors() -> list[type[FraudError]]:
    """Return all errors of the project, in the order of its layers."""
    # otherwise importing locust replaces sockets and threads in this process
    os.environ.setdefault("LOCUST_SKIP_MONKEY_PATCH", "1")
    for package in _PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            importlib.import_module(module.name)
    ours = [error for error in _subclasses(FraudError) if error.__module__.partition(".")[0] in _PACKAGES]
    return sorted(ours, key=lambda error: (_PACKAGES.index(error.__module__.partition(".")[0]), _line(error)))


def _subclasses(error: type[FraudError]) -> set[type[FraudError]]:
    return {each for child in error.__subclasses__() for each in {child, *_subclasses(child)}}


def _line(error: type[FraudError]) -> tuple[str, int]:
    return error.__module__, inspect.getsourcelines(error)[1]


def _table(name: str, rows: Iterable[tuple[str, str]]) -> str:
    return table((name, "what happened", "what to do"), ((name, *_told(text)) for name, text in rows))


def _told(text: str) -> tuple[str, str]:
    """Return what happened, and what to do."""
    happened, _, remedy = text.rpartition("\n\n") if "\n\n" in text else (text, "", "")
    return " ".join(happened.split()), " ".join(remedy.split())

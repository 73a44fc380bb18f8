"""Generator of docs/settings.md from the settings' classes: `python -m deploy.settings_page FILE`."""

import json
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

from deploy.page_tables import docstrings
from feature_store.catalogue import DAY_MS, MINUTE_MS
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics
from streaming_job.settings import JobSettings

_HEAD = """# Settings

Made from the classes of the settings by `make docs`; a test fails when the two differ. The commands read
these variables of the environment, and refuse an unknown one with the prefix `FRAUD_`, with the nearest known
name. (Kubernetes sets variables with that prefix in every pod of a namespace that has a service whose name
begins with `fraud-`; turn that off with `enableServiceLinks: false`.) "Fixed by the first start": a start
with another value on the same checkpoint is refused. [Operations](operations.md) says how the settings are
used.
"""

_JOB = """
## Of the job

`fraud job` reads them. The tools read those that concern them: `fraud dead-letters`, `fraud labels`, `fraud
verify`, `fraud simulate`.
"""

_SERVICE = """
## Of the sidecar

`fraud serve` and `fraud rollouts` read them. Those that have the names of the job's settings must have the
job's values.
"""

_TOOLS = """
## Of tools

| variable | meaning |
|---|---|
| `FRAUD_DATA_DIR` | Directory of the embedded servers (`fraud stack`, default `.fraud/stack`). |
| `FRAUD_POSTGRES_DSN` | Postgres in which `fraud simulate` loads and changes profiles. |
| `FRAUD_REGISTRY_AUTHORIZATION` | HTTP header Authorization of `fraud schemas publish` for the registry. |
| `FRAUD_SIDECAR_TOKEN` | Token with which the users of `fraud loadtest` ask a sidecar that requires one. |
"""

_TOPICS = """
## Names of topics

| variable | default |
|---|---|
"""

_COLUMNS = """
| variable | default | meaning |
|---|---|---|
"""

_TIMES = ((DAY_MS, "d"), (MINUTE_MS, "min"))
_SIZES = ((1 << 20, "MiB"), (1 << 10, "KiB"))
_BOUNDS = {"gt": "greater than {}", "ge": "at least {}", "le": "at most {}"}


def variable(field: str) -> str:
    """Return the environment variable of a field."""
    return "`FRAUD_TOPICS__<NAME>`" if field == "topics" else f"`FRAUD_{field.upper()}`"


def page() -> str:
    """Return the text of docs/settings.md."""
    topics = Topics().model_dump()
    names = "".join(
        f"| `FRAUD_TOPICS__{field.upper()}` | {f'`{name}`' if name else 'none'} |\n"
        for field, name in topics.items()
    )
    job, sidecar = _table(JobSettings), _table(ServiceSettings)
    return f"{_HEAD}{_JOB}{job}{_SERVICE}{sidecar}{_TOOLS}{_TOPICS}{names}"


def _table(settings: type[BaseSettings]) -> str:
    texts = {name: " ".join(text.split()) for name, text in docstrings(settings).items()}
    fields = settings.model_fields
    named = re.compile(rf"`?\b({'|'.join(name for name in fields if '_' in name)})\b`?")
    meanings = {name: named.sub(lambda found: variable(found[1]), text) for name, text in texts.items()}
    rows = (
        f"| {variable(name)} | {_default(name, field)} | {meanings[name]}{_bounds(field)} |\n"
        for name, field in fields.items()
    )
    return _COLUMNS + "".join(rows)


def _default(name: str, field: FieldInfo) -> str:
    default: Any = field.default
    if default is PydanticUndefined:
        return "required"
    if default in (None, "", ()):
        return "none"
    if isinstance(default, Topics):
        return "[below](#names-of-topics)"
    if isinstance(default, StrEnum):
        return f"`{default.value}`"
    value = f"`{default if isinstance(default, str) else json.dumps(default)}`"
    return f"{value} ({length})" if (length := _length(name, default)) else value


def _length(name: str, value: Any) -> str:
    """Return a time of minutes or more, or a size of kibibytes or more, in a unit that one can read."""
    units = _TIMES if name.endswith("_ms") else _SIZES if name.endswith("_bytes") else ()
    return next((f"{value // unit} {symbol}" for unit, symbol in units if value and value % unit == 0), "")


def _bounds(field: FieldInfo) -> str:
    bounds = [
        text.format(f"{getattr(limit, name):,}")
        for name, text in _BOUNDS.items()
        for limit in field.metadata
        if getattr(limit, name, None) not in {None, 0}
    ]
    return f" ({', '.join(bounds)})" if bounds else ""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())

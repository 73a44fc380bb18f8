"""The tables of docs/settings.md, from the classes of the settings."""

import json
import re
from enum import StrEnum
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

from deploy.page_tables import docstrings, table, with_table
from feature_store.catalogue import DAY_MS, MINUTE_MS
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics
from streaming_job.settings import JobSettings

_TIMES = ((DAY_MS, "d"), (MINUTE_MS, "min"))
_SIZES = ((1 << 20, "MiB"), (1 << 10, "KiB"))
_BOUNDS = {"gt": "greater than {}", "ge": "at least {}", "le": "at most {}"}


def variable(field: str) -> str:
    """Return the environment variable of a field."""
    return "`FRAUD_TOPICS__<NAME>`" if field == "topics" else f"`FRAUD_{field.upper()}`"


def page(text: str) -> str:
    """Return the text of docs/settings.md with regenerated tables."""
    text = with_table(text, "Of the job", _table(JobSettings))
    text = with_table(text, "Of the sidecar", _table(ServiceSettings))
    topics = (
        (f"`FRAUD_TOPICS__{field.upper()}`", f"`{name}`" if name else "none")
        for field, name in Topics().model_dump().items()
    )
    return with_table(text, "Names of topics", table(("variable", "default"), topics))


def _table(settings: type[BaseSettings]) -> str:
    texts = {name: " ".join(text.split()) for name, text in docstrings(settings).items()}
    fields = settings.model_fields
    named = re.compile(rf"`?\b({'|'.join(name for name in fields if '_' in name)})\b`?")
    meanings = {name: named.sub(lambda found: variable(found[1]), text) for name, text in texts.items()}
    rows = (
        (variable(name), _default(name, field), f"{meanings[name]}{_bounds(field)}")
        for name, field in fields.items()
    )
    return table(("variable", "default", "meaning"), rows)


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

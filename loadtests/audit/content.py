"""The content of a record, which anybody may have written."""

import json
from typing import Any


def content_of(value: bytes | None) -> Any:
    """Return a record's value, parsed.

    Raises:
        ValueError: it is no JSON, or is nested too deeply to be parsed.
    """
    try:
        return json.loads(value or b"")
    except RecursionError as fault:
        raise ValueError("JSON that is nested too deeply") from fault

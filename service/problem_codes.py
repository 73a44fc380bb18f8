"""The codes of the sidecar's problems, explained in the table `problem_codes.md`: one line for some codes.

`/openapi.json` contains the explanations, and docs/errors.md the table.
"""

import re
from importlib.resources import files
from typing import NamedTuple

TEXT = files("service").joinpath("problem_codes.md").read_text()
"""The table as Markdown."""
_ROW = re.compile(r"^\| (`.*?`) \| (\d{3}) \| (.*?) \| (.*?) \|$", re.MULTILINE)


class Row(NamedTuple):
    """Codes that share one explanation."""

    codes: tuple[str, ...]
    status: int
    """Usual HTTP status."""
    what_happened: str
    """Markdown without links."""
    what_to_do: str
    """Markdown without links."""


TABLE = tuple(
    Row(tuple(re.findall(r"\w+", codes)), int(status), happened, remedy)
    for codes, status, happened, remedy in _ROW.findall(re.sub(r"\[(.*?)\]\(.*?\)", r"\1", TEXT))
)
"""Rows in ascending order of status."""

"""The codes of the sidecar's problems, explained in the table `problem_codes.md`: one line for some codes.

`/openapi.json` contains the explanations; `python -m service.problem_codes FILE` copies the table into
docs/errors.md.
"""

import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

_TEXT = files("service").joinpath("problem_codes.md").read_text()
_ROW = re.compile(r"^\| (`.*?`) \| (\d{3}) \| (.*?) \| (.*?) \|$", re.MULTILINE)
_HEADING = "## Problems of the sidecar\n"


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
    for codes, status, happened, remedy in _ROW.findall(re.sub(r"\[(.*?)\]\(.*?\)", r"\1", _TEXT))
)
"""Rows in ascending order of status."""


def with_table(page: str) -> str:
    """Return the text of docs/errors.md with this table in place of the one below its heading."""
    before, heading, section = page.partition(_HEADING)
    introduction, _, rest = section.partition("\n\n|")
    _, _, after = rest.partition("\n\n")
    return f"{before}{heading}{introduction}\n\n{_TEXT}\n{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))

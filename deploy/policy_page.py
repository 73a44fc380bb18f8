"""Generator of the table of policy parameters in docs/rollouts.md: `python -m deploy.policy_page FILE`."""

import sys
from dataclasses import MISSING, fields
from pathlib import Path

from deploy.page_tables import docstrings, with_table
from models.policy import Policy

_COLUMNS = """| field | default | meaning |
|---|---|---|
"""


def page(text: str) -> str:
    """Return the text of docs/rollouts.md with its table of parameters made anew."""
    meanings = {name: " ".join(meaning.split()) for name, meaning in docstrings(Policy).items()}
    rows = (
        f"| `{each.name}` | {_default(each.default)} | {meanings[each.name]} |\n" for each in fields(Policy)
    )
    return with_table(text, "Policy", _COLUMNS + "".join(rows))


def _default(value: object) -> str:
    if value is MISSING:
        return "required"
    return "no such rule" if value is None else f"`{value}`"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text()))

"""Generator of the table of policy parameters in docs/rollouts.md: `python -m deploy.policy_page FILE`."""

from dataclasses import MISSING, fields

from deploy.page_tables import docstrings, update, with_table
from models.policy import Policy

_COLUMNS = """| field | default | meaning |
|---|---|---|
"""


def page(text: str) -> str:
    """Return the text of docs/rollouts.md with a regenerated table of parameters."""
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
    update(page)

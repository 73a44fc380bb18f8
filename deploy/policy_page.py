"""The table of policy parameters in docs/rollouts.md."""

from dataclasses import MISSING, fields

from deploy.page_tables import docstrings, table, with_table
from models.policy import Policy


def page(text: str) -> str:
    """Return the text of docs/rollouts.md with a regenerated table of parameters."""
    meanings = {name: " ".join(meaning.split()) for name, meaning in docstrings(Policy).items()}
    rows = ((f"`{each.name}`", _default(each.default), meanings[each.name]) for each in fields(Policy))
    return with_table(text, "Policy", table(("field", "default", "meaning"), rows))


def _default(value: object) -> str:
    if value is MISSING:
        return "required"
    return "no such rule" if value is None else f"`{value}`"

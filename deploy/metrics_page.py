"""Generator of the tables of docs/metrics.md: `python -m deploy.metrics_page FILE`."""

from collections.abc import Iterable

from deploy.page_tables import update, with_table
from loadtests.audit import exported
from service.metrics.table import SECTIONS, Family

_COLUMNS = """| metric | type | labels | meaning |
|---|---|---|---|
"""


def page(text: str) -> str:
    """Return the text of docs/metrics.md with regenerated tables."""
    for heading, families in {**SECTIONS, "The continuous audit": exported.FAMILIES}.items():
        text = with_table(text, heading, _table(families))
    return text


def _table(families: Iterable[Family]) -> str:
    return _COLUMNS + "".join(map(_row, families))


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.exposed_labels())
    return f"| `{family.exposed()}` | {family.type.value} | {labels} | {family.meaning} |\n"


if __name__ == "__main__":
    update(page)

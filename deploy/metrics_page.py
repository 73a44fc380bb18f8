"""Generator of the tables of docs/metrics.md: `python -m deploy.metrics_page FILE`."""

from collections.abc import Iterable

from deploy.page_tables import update, with_table
from loadtests.audit import exported
from service.metrics.table import SECTIONS
from streaming_job.archive import metrics as archive_metrics
from streaming_job.metric_families import Family

_COLUMNS = """| metric | type | labels | meaning |
|---|---|---|---|
"""


def page(text: str) -> str:
    """Return the text of docs/metrics.md with regenerated tables."""
    others = {"The continuous audit": exported.FAMILIES, "The archiver": archive_metrics.FAMILIES}
    for heading, families in {**SECTIONS, **others}.items():
        text = with_table(text, heading, _table(families))
    return text


def _table(families: Iterable[Family]) -> str:
    return _COLUMNS + "".join(map(_row, families))


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.exposed_labels())
    return f"| `{family.exposed()}` | {family.type.value} | {labels} | {family.meaning} |\n"


if __name__ == "__main__":
    update(page)

"""The tables of docs/metrics.md."""

from deploy.page_tables import table, with_table
from loadtests.audit import exported
from service.metrics.table import SECTIONS
from streaming_job.archive import metrics as archive_metrics
from streaming_job.metric_families import Family


def page(text: str) -> str:
    """Return the text of docs/metrics.md with regenerated tables."""
    others = {"The continuous audit": exported.FAMILIES, "The archiver": archive_metrics.FAMILIES}
    for heading, families in {**SECTIONS, **others}.items():
        text = with_table(text, heading, table(("metric", "type", "labels", "meaning"), map(_row, families)))
    return text


def _row(family: Family) -> tuple[str, str, str, str]:
    labels = ", ".join(f"`{label}`" for label in family.exposed_labels())
    return f"`{family.exposed()}`", family.type.value, labels, family.meaning

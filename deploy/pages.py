"""Generator of the tables in the pages of docs/: `python -m deploy.pages DIRECTORY`."""

import sys
from dataclasses import MISSING, fields
from pathlib import Path

from deploy import capacity_page, errors_page, settings_page, topics_page
from deploy.page_tables import docstrings, table, with_table
from feature_store.catalogue import DAY_MS, FEATURES, HOUR_MS, MINUTE_MS, Feature
from feature_store.merchants.catalogue import MERCHANT_FEATURES
from loadtests.audit import exported
from models.policy import Policy
from service.metrics.table import SECTIONS
from streaming_job.archive import metrics as archive_metrics
from streaming_job.metric_families import Family

_LENGTHS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"))


def _features(text: str) -> str:
    head = ("feature", "of", "unit", "window", "version", "meaning")
    text = with_table(text, "Features", table(head, map(_feature, FEATURES)))
    return with_table(text, "Of the merchant, from labels", table(head, map(_feature, MERCHANT_FEATURES)))


def _feature(feature: Feature) -> tuple[object, ...]:
    window, meaning = _length(feature.window_ms), feature.meaning.replace("|", "\\|")
    return f"`{feature.name}`", feature.key.value, feature.unit, window, feature.version, meaning


def _length(ms: int | None) -> str:
    if ms is None:
        return ""
    return next(f"{ms // length} {unit}" for length, unit in _LENGTHS if ms % length == 0)


def _metrics(text: str) -> str:
    others = {"The continuous audit": exported.FAMILIES, "The archiver": archive_metrics.FAMILIES}
    for heading, families in {**SECTIONS, **others}.items():
        rows = map(_metric, families)
        text = with_table(text, heading, table(("metric", "type", "labels", "meaning"), rows))
    return text


def _metric(family: Family) -> tuple[str, str, str, str]:
    labels = ", ".join(f"`{label}`" for label in family.exposed_labels())
    return f"`{family.exposed()}`", family.type.value, labels, family.meaning


def _rollouts(text: str) -> str:
    """Return the text of docs/rollouts.md with a regenerated table of a policy's parameters."""
    meanings = {name: " ".join(meaning.split()) for name, meaning in docstrings(Policy).items()}
    rows = ((f"`{each.name}`", _default(each.default), meanings[each.name]) for each in fields(Policy))
    return with_table(text, "Policy", table(("field", "default", "meaning"), rows))


def _default(value: object) -> str:
    if value is MISSING:
        return "required"
    return "no such rule" if value is None else f"`{value}`"


PAGES = {
    "capacity": capacity_page.page,
    "errors": errors_page.page,
    "features": _features,
    "metrics": _metrics,
    "rollouts": _rollouts,
    "settings": settings_page.page,
    "topics": topics_page.page,
}
"""Functions that return a page's text with regenerated tables, by the name of the page in docs/."""

if __name__ == "__main__":
    for name, page in PAGES.items():
        file = Path(sys.argv[1], f"{name}.md")
        file.write_text(page(file.read_text()))

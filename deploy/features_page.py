"""The tables of docs/features.md, from the catalogues of features."""

from deploy.page_tables import table, with_table
from feature_store.catalogue import DAY_MS, FEATURES, HOUR_MS, MINUTE_MS, Feature
from feature_store.merchants.catalogue import MERCHANT_FEATURES

COLUMNS = ("feature", "of", "unit", "window", "version", "meaning")
_LENGTHS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"))


def page(text: str) -> str:
    """Return the text of docs/features.md with regenerated tables."""
    text = with_table(text, "Features", table(COLUMNS, map(_row, FEATURES)))
    return with_table(text, "Of the merchant, from labels", table(COLUMNS, map(_row, MERCHANT_FEATURES)))


def _row(feature: Feature) -> tuple[object, ...]:
    window, meaning = _length(feature.window_ms), feature.meaning.replace("|", "\\\\|")
    return f"`{feature.name}`", feature.key.value, feature.unit, window, feature.version, meaning


def _length(ms: int | None) -> str:
    if ms is None:
        return ""
    return next(f"{ms // length} {unit}" for length, unit in _LENGTHS if ms % length == 0)

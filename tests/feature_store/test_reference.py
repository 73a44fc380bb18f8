"""docs/features.md is up to date with the catalogue."""

from pathlib import Path

import pytest

from feature_store.catalogue import FEATURES
from feature_store.reference import page

pytestmark = pytest.mark.unit

FILE = Path(__file__).parents[2] / "docs" / "features.md"


def test_the_page_is_up_to_date() -> None:
    assert FILE.read_text() == page(), "docs/features.md is stale: run `make docs`"


def test_every_feature_has_its_row() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows[: len(FEATURES)]] == [feature.name for feature in FEATURES]
    assert "| `spikes_7d` | card | 1 | 7 d | 1 | Spikes among" in page()

"""The pages that are made from the code are up to date with it."""

from pathlib import Path

import pytest

from deploy.page_tables import docstrings
from deploy.pages import PAGES
from feature_store.catalogue import FEATURES
from service.settings import ServiceSettings
from streaming_job.contracts import Reason
from streaming_job.settings import JobSettings

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_of_a_page_are_up_to_date(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text()
    assert text == PAGES[name](text), "they are stale: run `make docs`"


def test_every_feature_has_its_row() -> None:
    page = PAGES["features"]((DOCS / "features.md").read_text())
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows[: len(FEATURES)]] == [feature.name for feature in FEATURES]
    assert "| `spikes_7d` | card | 1 | 7 d | 1 | Spikes among" in page


def test_every_reason_says_what_to_do() -> None:
    texts = docstrings(Reason)
    assert list(texts) == [reason.name for reason in Reason]
    assert all("\n\n" in text for text in texts.values())


@pytest.mark.parametrize("settings", [JobSettings, ServiceSettings])
def test_every_setting_has_a_text(settings: type[JobSettings | ServiceSettings]) -> None:
    assert docstrings(settings).keys() >= settings.model_fields.keys()

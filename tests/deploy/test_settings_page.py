"""docs/settings.md and docs/topics.md are up to date with the code."""

from pathlib import Path

import pytest

from deploy import settings_page, topics_page
from deploy.settings_page import docstrings
from service.settings import ServiceSettings
from streaming_job.settings import JobSettings

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_settings_is_up_to_date() -> None:
    assert (DOCS / "settings.md").read_text() == settings_page.page(), "it is stale: run `make docs`"


def test_the_page_of_topics_is_up_to_date() -> None:
    assert (DOCS / "topics.md").read_text() == topics_page.page(), "it is stale: run `make docs`"


@pytest.mark.parametrize("settings", [JobSettings, ServiceSettings])
def test_every_setting_has_a_text(settings: type[JobSettings | ServiceSettings]) -> None:
    assert docstrings(settings).keys() >= settings.model_fields.keys()

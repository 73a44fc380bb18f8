"""docs/settings.md is up to date with the classes of the settings."""

from pathlib import Path

import pytest

from deploy.settings_page import docstrings, page
from service.settings import ServiceSettings
from streaming_job.settings import JobSettings

pytestmark = pytest.mark.unit

FILE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_up_to_date() -> None:
    assert FILE.read_text() == page(), "docs/settings.md is stale: run `make docs`"


@pytest.mark.parametrize("settings", [JobSettings, ServiceSettings])
def test_every_setting_has_a_text(settings: type[JobSettings | ServiceSettings]) -> None:
    assert docstrings(settings).keys() >= settings.model_fields.keys()

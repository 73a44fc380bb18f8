"""The pages that are made from the code are up to date with it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import capacity_page, errors_page, metrics_page, policy_page, settings_page, topics_page
from deploy.page_tables import docstrings
from service.settings import ServiceSettings
from streaming_job.contracts import Reason
from streaming_job.settings import JobSettings

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_settings_is_up_to_date() -> None:
    assert (DOCS / "settings.md").read_text() == settings_page.page(), "it is stale: run `make docs`"


def test_the_page_of_topics_is_up_to_date() -> None:
    assert (DOCS / "topics.md").read_text() == topics_page.page(), "it is stale: run `make docs`"


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("capacity", capacity_page.page),
        ("errors", errors_page.page),
        ("metrics", metrics_page.page),
        ("rollouts", policy_page.page),
    ],
)
def test_the_tables_of_a_page_are_up_to_date(name: str, page: Callable[[str], str]) -> None:
    text = (DOCS / f"{name}.md").read_text()
    assert text == page(text), "they are stale: run `make docs`"


def test_every_reason_says_what_to_do() -> None:
    texts = docstrings(Reason)
    assert list(texts) == [reason.name for reason in Reason]
    assert all("\n\n" in text for text in texts.values())


@pytest.mark.parametrize("settings", [JobSettings, ServiceSettings])
def test_every_setting_has_a_text(settings: type[JobSettings | ServiceSettings]) -> None:
    assert docstrings(settings).keys() >= settings.model_fields.keys()

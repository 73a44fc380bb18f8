"""Records of refused requests that do not reach a broker."""

import atexit
import logging
from collections.abc import Iterator

import pytest
from harness.memory_rollouts import ADA, START

from service.rollouts import refusals
from service.rollouts.errors import StaleError
from service.rollouts.refusals import Refusals
from service.settings import ServiceSettings

pytestmark = pytest.mark.unit


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusals]:
    """One refusal, and no broker to send it to."""
    monkeypatch.setattr(refusals, "FLUSH_S", 0.1)
    noted = Refusals(ServiceSettings(bootstrap_servers="127.0.0.1:1"), lambda: START / 1000)
    noted.note("rollout.paused", "r2", ADA, StaleError("seq", "an older one"))
    yield noted
    atexit.unregister(noted.flush)


def test_a_refusal_that_is_not_confirmed_before_the_process_ends_is_logged(
    records: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        records.flush()
    assert "did not confirm 1 records" in caplog.text


def test_a_refusal_that_cannot_be_sent_does_not_take_earlier_ones_with_it(
    records: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        records.note("rollout.resumed", "r2", ADA, StaleError("seq", "too large" * 1_000_000))
        records.flush()
    assert "Message size too large" in caplog.text
    assert "did not confirm 1 records" in caplog.text

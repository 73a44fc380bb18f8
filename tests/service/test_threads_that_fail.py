"""The sidecar's threads that read Kafka go on after an error of any kind, and say which it was."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

from service.health.lag_watch import LagWatch
from service.precision.follower import LabelFollower
from service.precision.trial import LabelledTrial
from service.settings import ServiceSettings
from service.topic_follower import TopicFollower
from streaming_job.log.clients import Consumer

pytestmark = pytest.mark.unit
SETTINGS = ServiceSettings(bootstrap_servers="none")
TRIAL = LabelledTrial("r1", ("b",), 0)


class Followed(TopicFollower):
    """A follower of no topic."""

    def __init__(self) -> None:
        super().__init__(SETTINGS, (), "records")

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        return []

    def _take(self, records: Sequence[Message]) -> None: ...


def counted(thread: LabelFollower) -> str | None:
    counts = thread.counts("r1")
    return None if counts is None else counts.waiting_for


@pytest.mark.parametrize(
    ("thread", "step", "said"),
    [
        (Followed(), "_follow", lambda thread: thread.waiting_for),
        (LagWatch(SETTINGS, dict), "_watch", lambda thread: thread.fault),
        (LabelFollower(SETTINGS, lambda: TRIAL), "_follow", counted),
    ],
    ids=["topics", "lag", "labels"],
)
def test_a_thread_goes_on_after_any_error_and_says_which(
    thread: Any, step: str, said: Callable[[Any], str | None],
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    seen: list[str | None] = []

    def fail(*_: Any) -> None:
        seen.append(said(thread))
        if len(seen) == 3:
            thread._stop.set()
            return
        raise KeyError("applied")

    monkeypatch.setattr(thread, step, fail)
    monkeypatch.setattr(thread._stop, "wait", lambda _: None)
    with caplog.at_level(logging.WARNING):
        thread._run()
    assert len(seen) == 3
    assert all("KeyError: 'applied'" in (text or "") for text in seen[1:])
    assert len([record for record in caplog.records if record.exc_info]) == 1  # not once a second

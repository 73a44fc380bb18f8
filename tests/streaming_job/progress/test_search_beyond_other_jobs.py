"""The search for a job's progress in a topic to which other jobs have written much since."""

import logging
from collections.abc import Iterator

import orjson
import pytest
from confluent_kafka import Consumer, TopicPartition

from streaming_job.progress import reader
from streaming_job.progress.reader import newest_by_group
from tests.streaming_job.progress.test_reader import progress

pytestmark = pytest.mark.unit

STEPS, BLIND = (1, 10), 10
FOREIGN = 250
"""Records of another job after those of `job`: more than 10 * STEPS[-1]."""


class Message:
    """A record of the topic."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"job" if self._offset < 2 else b"other"

    def value(self) -> bytes:
        return orjson.dumps(progress(self._offset % 2, self._offset + 1))


@pytest.fixture(autouse=True)
def topic(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_end(_: Consumer, start: TopicPartition, end: int) -> Iterator[Message]:
        return map(Message, range(start.offset, end))

    monkeypatch.setattr(reader, "STEPS_BACK", STEPS)
    monkeypatch.setattr(reader.topic_reader, "partitions", lambda *_: [0])
    monkeypatch.setattr(reader.topic_reader, "offsets", lambda *_: (0, 2 + FOREIGN))
    monkeypatch.setattr(reader.follow, "to_end", to_end)


@pytest.mark.parametrize("groups", [None, {0}, {1}])
def test_other_jobs_records_never_hide_a_jobs_own(groups: set[int] | None) -> None:
    found = newest_by_group(None, "topic", "job", groups)  # type: ignore[arg-type]
    assert {group: record["commit_id"] for group, record in found.items()} == {
        group: group + 1 for group in groups or (0, 1)
    }


def test_a_search_that_is_cut_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert newest_by_group(None, "topic", "job", first_within=BLIND) == {}  # type: ignore[arg-type]
    assert "no progress of job job is among the last 10 offsets of topic" in caplog.text
    caplog.clear()
    found = newest_by_group(None, "topic", "other", first_within=BLIND)  # type: ignore[arg-type]
    assert set(found) == {0, 1}
    assert not caplog.text

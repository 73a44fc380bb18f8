"""The follower of partitions, with a reader whose answers are given.

record a  offset a of partition 0        end     the broker reports the end of partition 0
record Z  offset of partition 1          END     the same of partition 1
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from streaming_job.log import follow
from streaming_job.log.follow import Follower, newest, to_end
from streaming_job.runtime import pauses

pytestmark = pytest.mark.unit

TOPIC = "topic"
EOF = KafkaError(KafkaError._PARTITION_EOF)


class Answer:
    """A message of the library: a record, or an error."""

    def __init__(self, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self.at, self.fault = (partition, offset), error

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self.at[0]

    def offset(self) -> int:
        return self.at[1]

    def error(self) -> KafkaError | None:
        return self.fault


class Reader:
    """A consumer that gives its answers in pieces, one for each call; then it is silent.

    The leader of a partition names `end`, by default the last end that the answers report.
    """

    def __init__(self, *pieces: Sequence[Answer], end: int | None = None) -> None:
        self.pieces = list(pieces)
        self.reported = {answer.at[0]: answer.at[1] for piece in pieces for answer in piece if answer.fault}
        self.leaders_end = end
        self.partitions: int | None = 2
        """Number of each topic's partitions; None: the brokers do not answer."""
        self.refused = ""
        """Topic that may not be looked up."""
        self.assigned: list[tuple[int, int]] = []
        self.paused: list[int] = []

    def get_watermark_offsets(self, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        return 0, self.reported[partition.partition] if self.leaders_end is None else self.leaders_end

    def assign(self, starts: Sequence[TopicPartition]) -> None:
        self.assigned = [(start.partition, start.offset) for start in starts]

    def incremental_assign(self, starts: Sequence[TopicPartition]) -> None:
        self.assigned += [(start.partition, start.offset) for start in starts]

    def list_topics(self, topic: str, timeout_s: float) -> Any:
        if self.partitions is None or topic == self.refused:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        known = SimpleNamespace(error=None, partitions=dict.fromkeys(range(self.partitions)))
        return SimpleNamespace(topics={topic: known})

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused += [partition.partition for partition in partitions]

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Resume what an earlier follower has paused."""

    def consume(self, most: int, wait_s: float) -> list[Answer]:
        return list(self.pieces.pop(0)) if self.pieces else []


class Log(Reader):
    """A consumer of one partition, in which only some offsets have records."""

    def __init__(self, records: Sequence[int], end: int) -> None:
        super().__init__()
        self.records, self.end, self.read = records, end, 0

    def get_watermark_offsets(self, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        return 0, self.end

    def consume(self, most: int, wait_s: float) -> list[Answer]:
        ((partition, start),) = self.assigned
        self.read += self.end - start
        return [Answer(partition, at) for at in self.records if at >= start] + [Answer(0, self.end, EOF)]


def start(partition: int, offset: int = 0) -> TopicPartition:
    return TopicPartition(TOPIC, partition, offset)


def follower(reader: Any, starts: Sequence[TopicPartition], ends: Any = None) -> Follower:
    return Follower(reader, starts, ends)


def read(reader: Any, starts: Sequence[TopicPartition], ends: Any = None) -> list[tuple[int, int]]:
    return [message.at for message in follower(reader, starts, ends).to_end()]  # type: ignore[attr-defined]


def test_partitions_are_read_to_the_ends_that_the_broker_reports() -> None:
    reader = Reader(
        [Answer(0, 0), Answer(1, 7)],
        [Answer(0, 1, EOF), Answer(0, 1), Answer(1, 8)],  # written after the end was reported
        [Answer(1, 9, EOF)],
        [Answer(1, 9)],
    )
    assert read(reader, [start(0), start(1, 7)]) == [(0, 0), (1, 7), (1, 8)]
    assert reader.assigned == [(0, 0), (1, 7)]
    assert reader.paused == [0], "the last partition is not paused: the reader may be used again"


def test_given_ends_stop_the_reading_before_a_report() -> None:
    reader = Reader([Answer(0, 3), Answer(0, 4), Answer(0, 5)], [Answer(1, 2)], [Answer(1, 9)])
    # of partition 1 the offsets before its end are those of markers and aborted records
    assert read(reader, [start(0, 3), start(1, 2)], {(TOPIC, 0): 5, (TOPIC, 1): 8}) == [
        (0, 3),
        (0, 4),
        (1, 2),
    ]


@pytest.mark.parametrize("ends", [{}, {(TOPIC, 0): 4}])
def test_an_end_that_a_replica_reports_too_early_does_not_stop_the_reading(ends: Any) -> None:
    pieces = [Answer(0, 0), Answer(0, 1, EOF)], [Answer(0, 1), Answer(0, 2, EOF)], [Answer(0, 3)]
    reader = Reader(*pieces, [Answer(0, 4, EOF)], end=4)
    assert read(reader, [start(0)], ends) == [(0, 0), (0, 1), (0, 3)]


def test_a_given_end_beyond_the_leaders_is_not_waited_for() -> None:
    reader = Reader([Answer(0, 0), Answer(0, 1, EOF)], end=1)
    assert read(reader, [start(0)], {(TOPIC, 0): 9}) == [(0, 0)]


def test_a_partition_whose_end_is_not_after_its_start_is_not_read() -> None:
    reader = Reader()
    assert read(reader, [start(0, 5)], {(TOPIC, 0): 5}) == []
    assert reader.assigned == []


@pytest.mark.parametrize("code", follow.RETRIED)
def test_errors_of_connections_are_passed_over(code: int) -> None:
    reader = Reader([Answer(0, 0), Answer(0, -1, KafkaError(code))], [Answer(0, 1)], [Answer(0, 2, EOF)])
    assert read(reader, [start(0)]) == [(0, 0), (0, 1)]


def test_any_other_error_ends_the_reading() -> None:
    reader = Reader([Answer(0, 0), Answer(0, -1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))])
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        read(reader, [start(0)])


def test_silence_ends_the_reading_after_the_patience() -> None:
    reader = Reader([Answer(0, 0)], [Answer(0, -1, KafkaError(KafkaError._TRANSPORT))])
    records = follower(reader, [start(0)]).to_end(patience_s=0.05)
    assert next(records).offset() == 0
    with pytest.raises(KafkaException, match="no answer about topic"):
        next(records)


def test_the_time_that_the_caller_takes_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(follow.time, "monotonic", lambda: now[0])
    reader = Reader([Answer(0, 0)], [], [Answer(0, 1)], [Answer(0, 2, EOF)])
    offsets = []
    for message in follower(reader, [start(0)]).to_end():
        offsets.append(message.offset())
        now[0] += 10 * follow.PATIENCE_S
    assert offsets == [0, 1]


def test_a_stop_ends_the_wait_for_brokers_that_do_not_answer() -> None:
    with pauses.ended_by(lambda: True, grace_s=0.0), pytest.raises(pauses.StoppedError):
        list(follower(Reader([Answer(0, 0)]), [start(0)]).to_end(patience_s=0.2))


def test_polls_return_new_records_and_note_what_is_read_to_its_end() -> None:
    lost = Answer(0, -1, KafkaError(KafkaError._TRANSPORT))
    reader = Reader([Answer(0, 4), Answer(0, 5, EOF), lost], [], [Answer(1, 0)], [Answer(1, 1, EOF)])
    records = follower(reader, [start(0, 4), start(1)])
    assert records.behind == {(TOPIC, 0), (TOPIC, 1)}
    assert [message.offset() for message in records.poll()] == [4]
    assert records.behind == {(TOPIC, 1)}
    assert records.poll() == []
    assert [message.partition() for message in records.poll()] == [1]
    assert records.poll() == []
    assert records.behind == set()


def test_a_partition_is_behind_until_its_leaders_end_is_read() -> None:
    reader = Reader([Answer(0, 0), Answer(0, 1, EOF)], [Answer(0, 1), Answer(0, 2, EOF)], end=2)
    records = follower(reader, [start(0)])
    assert len(records.poll()) == 1
    assert records.behind == {(TOPIC, 0)}
    assert len(records.poll()) == 1
    assert records.behind == set()


def test_polls_follow_partitions_that_are_added_from_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(follow.time, "monotonic", lambda: now[0])
    reader = Reader([Answer(0, 5, EOF), Answer(1, 0, EOF)], [], [], [Answer(2, 0), Answer(2, 1, EOF)])
    records = follower(reader, [start(0, 5), start(1)])
    records.poll()
    for partitions in (None, 2):  # brokers that do not answer delay the look-up, and end nothing
        reader.partitions, now[0] = partitions, now[0] + 2 * follow.NEW_PARTITIONS_S
        assert records.poll() == []
    reader.partitions = 3
    assert records.behind == set()
    now[0] += 2 * follow.NEW_PARTITIONS_S
    assert [message.partition() for message in records.poll()] == [2]
    assert reader.assigned == [(0, 5), (1, 0), (2, OFFSET_BEGINNING)]
    assert records.behind == set(), "it was read to its end"


def test_look_ups_of_new_partitions_that_go_on_failing_are_repeated_and_show(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(follow.time, "monotonic", lambda: now[0])
    reader = Reader()
    records = follower(reader, [start(0), start(1), TopicPartition("another", 0)])
    reader.refused, reader.partitions = "another", 3
    for _ in range(follow.FAILED):
        assert records.trouble is None
        now[0] += 2 * follow.NEW_PARTITIONS_S
        records.poll()
        assert reader.assigned[-1] == (2, OFFSET_BEGINNING), "that of the topic whose look-up does not fail"
    assert "new partitions of another cannot be looked up" in (records.trouble or "")
    now[0] += 2 * follow.NEW_PARTITIONS_S
    records.poll()
    assert caplog.messages == [f"{records.trouble}; it is tried again every 10 s"]
    reader.refused = ""
    now[0] += 2 * follow.NEW_PARTITIONS_S
    records.poll()
    assert records.trouble is None
    assert reader.assigned[-2:] == [(1, OFFSET_BEGINNING), (2, OFFSET_BEGINNING)]


@pytest.mark.parametrize("error", ["UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED", "_BAD_MSG"])
def test_a_poll_fails_if_a_partition_cannot_be_read(error: str) -> None:
    unreadable = Answer(0, -1, KafkaError(getattr(KafkaError, error)))
    with pytest.raises(KafkaException, match=error):
        follower(Reader([unreadable]), [start(0)]).poll()


@pytest.mark.parametrize("error", ["_AUTHENTICATION", "_SSL", "GROUP_AUTHORIZATION_FAILED"])
def test_a_poll_fails_if_the_client_cannot_log_in(error: str) -> None:
    refused = Answer(0, -1, KafkaError(getattr(KafkaError, error)))
    refused.topic = lambda: None  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(KafkaException, match=error):
        follower(Reader([refused]), [start(0)]).poll()


def test_the_newest_records_are_found_behind_markers_without_reading_all() -> None:
    log: Any = Log(range(0, 50_000, 2), 60_000)
    assert [message.offset() for message in newest(log, start(0), 2)] == [49_996, 49_998]
    assert log.read < 60_000 + 200_000
    few: Any = Log(range(0, 1_000_000, 2), 1_000_000)
    newest(few, start(0))
    assert few.read == 10


def test_the_newest_records_before_an_offset() -> None:
    log: Any = Log(range(100), 100)
    assert [message.offset() for message in newest(log, start(0), 3, before=50)] == [47, 48, 49]
    assert [message.offset() for message in newest(log, start(0), 3, before=2)] == [0, 1]
    assert newest(log, start(0), 3, before=0) == []


def test_one_partition_is_read_to_its_end_or_to_before_an_offset() -> None:
    log: Any = Log(range(10), 10)
    assert [message.offset() for message in to_end(log, start(0, 8))] == [8, 9]
    assert [message.offset() for message in to_end(log, start(0, 3), 5)] == [3, 4]

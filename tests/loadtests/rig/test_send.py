"""The sender of all tools: due times, slip, and records that are not delivered, with a real broker."""

import threading
import uuid
from collections.abc import Iterator

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from deploy.local.stack import Endpoints
from loadtests.audit.topic_log import TopicLog
from loadtests.rig.pace import Pace
from loadtests.rig.send import AHEAD, INTENDED_AT, Sender, SendError, ahead
from loadtests.simulator.timeline import Records
from streaming_job.log.clients import Address

START_MS = 1_790_000_000_000


def records(topic: str, times: list[int], value: bytes = b"{}") -> Records:
    return Records(topic, np.array(times), [b"card"] * len(times), [value] * len(times))


@pytest.mark.unit
def test_parts_are_made_ahead_in_their_order_and_an_error_comes_at_its_place() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number
        raise ValueError("no more")

    parts = ahead(numbers())
    first = next(parts)
    assert first == 0
    taken = [first]
    with pytest.raises(ValueError, match="no more"):
        taken.extend(iter(parts))
    assert taken == made == list(range(10))
    several = ahead(iter(range(100)))
    assert [next(several) for _ in range(3)] == [0, 1, 2]
    several.close()
    assert threading.active_count() < 50


@pytest.mark.unit
def test_no_more_parts_are_made_ahead_than_said() -> None:
    made: list[int] = []
    parts = ahead(made.append(number) or number for number in range(100))
    assert next(parts) == 0
    parts.close()
    assert len(made) <= AHEAD + 1


@pytest.fixture
def topic(stack: Endpoints) -> Iterator[str]:
    admin, name = AdminClient({"bootstrap.servers": stack.bootstrap_servers}), f"sent-{uuid.uuid4()}"
    admin.create_topics([NewTopic(name, 2, 1, config={"max.message.bytes": "10000"})])[name].result()
    yield name
    admin.delete_topics([name])[name].result()


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_records_carry_when_they_were_due_and_the_slip_counts_from_then(stack: Endpoints, topic: str) -> None:
    sender = Sender(Address(stack.bootstrap_servers), stamped=True, headed=True)
    late_ms = 700.0
    start_ms = round(sender.clock.now_ms() - late_ms)
    slips_us: list[int] = []
    times = [START_MS + at for at in (0, 1, 900)]
    sent = sender.send(
        [records(topic, times)], Pace(start_ms, START_MS), on_sent=lambda _, us: slips_us.extend(us.tolist())
    )
    assert sent == {topic: 3}
    read = list(TopicLog(stack.bootstrap_servers).read(topic))
    intended = sorted(int(dict(record.headers)[INTENDED_AT]) for record in read)
    assert intended == [1_000 * (start_ms + at) for at in (0, 1, 900)]
    assert sorted(record.timestamp for record in read) == times
    # the first two were due before the sender began: nothing hides that
    assert min(slips_us[:2]) > 1_000 * (late_ms - 1) - 1
    assert 0 <= slips_us[2] < slips_us[1]


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_record_that_is_not_delivered_ends_the_sending_or_is_counted(stack: Endpoints, topic: str) -> None:
    brokers, large = (
        Address(stack.bootstrap_servers),
        records(topic, [0], np.random.default_rng(1).bytes(20_000)),
    )
    with pytest.raises(SendError, match="was not delivered"):
        Sender(brokers).send([large], Pace.at_once())
    tolerant = Sender(brokers, strict=False)
    for part in (large, records(topic, [1, 2])):  # not as one batch, which would be refused as a whole
        tolerant.run([part], Pace.at_once())
        assert tolerant.flush() == 0
    assert (tolerant.refused, tolerant.acknowledged) == (1, 2)
    assert tolerant.error
    assert tolerant.sent == {topic: 3}


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_nothing_is_sent_after_the_end(stack: Endpoints, topic: str) -> None:
    sender = Sender(Address(stack.bootstrap_servers))
    now_ms = sender.clock.now_ms()
    times = [int(now_ms), int(now_ms) + 60_000]
    assert sender.send([records(topic, times)], until_ms=now_ms + 500) == {topic: 1}
    assert sender.clock.now_ms() < now_ms + 30_000

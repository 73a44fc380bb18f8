"""The reader of an audit names deleted records, and waits for those of a transaction; with a real broker."""

import threading
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from deploy.local.stack import Endpoints
from loadtests.audit.topic_log import TopicLog, TopicReadError
from streaming_job.log import clients
from streaming_job.log.clients import Address

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def made(stack: Endpoints, name: str) -> str:
    """Create a topic of one partition; return its name."""
    topic = f"{name}-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    return topic


def in_transaction(stack: Endpoints, topic: str, value: str) -> clients.Producer:
    """Return a producer that has written a record in a transaction, which is open."""
    producer = clients.producer(Address(stack.bootstrap_servers), fixed={"transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.flush()
    return producer


def test_records_that_are_deleted_before_they_are_read_are_not_passed_over(stack: Endpoints) -> None:
    topic = made(stack, "audited")
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    producer = clients.producer(Address(stack.bootstrap_servers))
    for number in range(5):
        producer.produce(topic, str(number))
    producer.flush()
    log = TopicLog(stack.bootstrap_servers)
    assert [record.offset for record in log.read(topic, {0: 5}, {0: 1})] == [1, 2, 3, 4]
    cut = TopicPartition(topic, 0, 3)
    admin.delete_records([cut])[cut].result()
    assert [record.offset for record in log.read(topic)] == [3, 4]
    assert [record.offset for record in log.read(topic, {0: 5}, {0: 3})] == [3, 4]
    assert [record.offset for record in log.read(topic, None, {0: 1})] == [3, 4]
    with pytest.raises(TopicReadError, match="offset"):
        list(log.read(topic, {0: 5}, {0: 1}))


def test_records_behind_an_open_transaction_are_counted(
    stack: Endpoints, wait_for: Callable[..., object]
) -> None:
    topic = made(stack, "hidden")
    killed = in_transaction(stack, topic, "of a transaction that stays open")
    later = clients.producer(Address(stack.bootstrap_servers))
    later.produce(topic, "committed")
    later.flush()
    log = TopicLog(stack.bootstrap_servers)
    assert log.unreadable(topic) == 2
    assert list(log.read(topic)) == []
    killed.abort_transaction()
    wait_for(lambda: log.unreadable(topic) == 0, deadline_s=60, what="the end of the transaction")
    assert [record.value for record in log.read(topic)] == [b"committed"]


def test_a_read_waits_for_a_transaction_that_is_being_committed(stack: Endpoints) -> None:
    topic = made(stack, "committing")
    producer = in_transaction(stack, topic, "an alert")
    commit = threading.Timer(1.0, producer.commit_transaction)
    commit.start()
    assert [record.value for record in TopicLog(stack.bootstrap_servers).read(topic)] == [b"an alert"]
    commit.join()

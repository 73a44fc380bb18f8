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


def test_records_that_are_deleted_before_they_are_read_are_not_passed_over(stack: Endpoints) -> None:
    brokers, topic = Address(stack.bootstrap_servers), f"audited-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = clients.producer(brokers)
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
    brokers, topic = Address(stack.bootstrap_servers), f"hidden-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    killed = clients.producer(brokers, fixed={"transactional.id": topic})
    killed.init_transactions()
    killed.begin_transaction()
    killed.produce(topic, "of a transaction that stays open")
    killed.flush()
    later = clients.producer(brokers)
    later.produce(topic, "committed")
    later.flush()
    log = TopicLog(stack.bootstrap_servers)
    assert log.unreadable(topic) == 2
    assert list(log.read(topic)) == []
    killed.abort_transaction()
    wait_for(lambda: log.unreadable(topic) == 0, deadline_s=60, what="the end of the transaction")
    assert [record.value for record in log.read(topic)] == [b"committed"]


def test_a_read_waits_for_a_transaction_that_is_being_committed(stack: Endpoints) -> None:
    brokers, topic = Address(stack.bootstrap_servers), f"committing-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = clients.producer(brokers, fixed={"transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, "an alert")
    producer.flush()
    commit = threading.Timer(1.0, producer.commit_transaction)
    commit.start()
    assert [record.value for record in TopicLog(stack.bootstrap_servers).read(topic)] == [b"an alert"]
    commit.join()

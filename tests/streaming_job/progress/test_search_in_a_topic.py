"""The search for the newest progress records in a topic of a broker."""

from collections.abc import Callable

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from deploy.local.stack import Endpoints
from streaming_job.contracts.topics import Topics
from streaming_job.log import clients
from streaming_job.log.clients import Address
from streaming_job.progress.reader import STEPS_BACK, newest_by_group
from tests.streaming_job.progress.test_reader import progress

pytestmark = pytest.mark.integration


def test_feature_counts_of_an_earlier_window_of_the_search_are_kept(
    stack: Endpoints, topic_names: Callable[[], Topics]
) -> None:
    """The last 100 records, which are searched first, are of group 1, without feature counts.

    The second step of the search finds group 0, and the feature counts of group 1.

    offset   0              1          2 ...
    group    1 with counts  0          1 without counts
    """
    topic = topic_names().job_progress
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    records = [progress(1, 1) | {"feature_counts": {"hour": 7}}, progress(0, 1)]
    records += [progress(1, number) for number in range(2, 3 * STEPS_BACK[0])]
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers})
    for record in records:
        producer.produce(topic, orjson.dumps(record), b"job")
    assert producer.flush(30) == 0
    reader = clients.reader(Address(stack.bootstrap_servers), "test")
    try:
        newest = newest_by_group(reader, topic, "job")
    finally:
        reader.close()
    assert {group: record["commit_id"] for group, record in newest.items()} == {0: 1, 1: len(records) - 1}
    assert newest[1]["feature_counts"] == {"hour": 7}
    assert "feature_counts" not in newest[0]

"""The watch of alerts: which it sees, and the latency that all tools report."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from deploy.local.stack import Endpoints
from loadtests.rig.watch import AlertWatch, ReceivedAlert, WatchError, arrival_latencies_us
from streaming_job.log.clients import Address

WaitFor = Callable[..., object]


def alert(arrival_ms: int) -> bytes:
    return json.dumps({"arrival_time": arrival_ms}).encode()


def values(seen: list[ReceivedAlert]) -> list[int]:
    return sorted(json.loads(value)["arrival_time"] for value, _ in seen)


@pytest.mark.unit
def test_latencies_are_those_of_arrivals_after_the_warm_up_and_before_the_end() -> None:
    seen = [ReceivedAlert(alert(arrival), at_ns) for arrival, at_ns in (
        (999, 1_010_000_000), (1_000, 1_012_345_678), (1_999, 2_000_000_000), (2_000, 2_500_000_000),
    )]  # fmt: skip
    assert arrival_latencies_us(seen, 1_000, 2_000).tolist() == [12_345, 1_000]
    assert arrival_latencies_us(seen, 1_000).tolist() == [12_345, 1_000, 500_000]
    assert arrival_latencies_us([], 1_000).tolist() == []


@pytest.fixture
def topic(stack: Endpoints) -> Iterator[str]:
    admin, name = AdminClient({"bootstrap.servers": stack.bootstrap_servers}), f"alerts-{uuid.uuid4()}"
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    yield name
    admin.delete_topics([name])[name].result()


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_committed_alerts_are_seen_from_the_beginning_or_from_now_on(
    stack: Endpoints, topic: str, wait_for: WaitFor
) -> None:
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers, "transactional.id": str(uuid.uuid4())})
    producer.init_transactions()

    def transaction(arrivals: list[int], end: Callable[[], None]) -> None:
        producer.begin_transaction()
        for number, arrival in enumerate(arrivals):
            producer.produce(topic, alert(arrival), partition=number % 2)
        producer.flush()
        end()

    transaction([1, 2, 3], producer.commit_transaction)
    brokers = Address(stack.bootstrap_servers)
    whole = AlertWatch(brokers, topic, from_beginning=True)
    whole.start()
    wait_for(lambda: len(whole.seen) == 3)
    assert values(whole.take()) == [1, 2, 3]
    from_now = AlertWatch(brokers, topic)
    from_now.start()
    transaction([4], producer.abort_transaction)
    sent_ns = time.time_ns()
    transaction([5, 6], producer.commit_transaction)
    for watch in (from_now, whole):
        wait_for(lambda watch=watch: len(watch.seen) == 2)
        watch.check()
        received = watch.finish()
        assert values(received) == [5, 6]
        assert all(sent_ns < at_ns < time.time_ns() for _, at_ns in received)


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_watch_ends_while_alerts_go_on_and_has_all_that_were_committed_before(
    stack: Endpoints, topic: str, wait_for: WaitFor
) -> None:
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers, "transactional.id": str(uuid.uuid4())})
    producer.init_transactions()
    stopping = threading.Event()
    committed = 0

    def alerts_go_on() -> None:
        nonlocal committed
        while not stopping.is_set():
            producer.begin_transaction()
            producer.produce(topic, alert(committed), partition=0)  # nothing after the marker in partition 1
            if committed == 0:
                producer.produce(topic, alert(-1), partition=1)
            producer.commit_transaction()
            committed += 1

    watch = AlertWatch(Address(stack.bootstrap_servers), topic)
    watch.start()
    sender = threading.Thread(target=alerts_go_on)
    sender.start()
    try:
        time.sleep(1.0)
        before = committed
        received = values(watch.finish())
        assert received[: before + 1] == list(range(-1, before))
        at_the_end = committed
        wait_for(lambda: committed > at_the_end, what="an alert after the end of the watch")
        assert before < committed, "the alerts did not go on"
    finally:
        stopping.set()
        sender.join()


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_missing_topic_is_named(stack: Endpoints) -> None:
    with pytest.raises(WatchError, match="alerts on no-such-alerts cannot be read"):
        AlertWatch(Address(stack.bootstrap_servers), "no-such-alerts")

"""Requests and responses are lost, late or overtaken: each record is written once, and no table is missed."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.writer_bench import WriterBench
from thoroughness import THOROUGH

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from loadtests.faults.proxy import ALWAYS, HOST, Api, Fault, Kind, Proxy, draw
from loadtests.faults.record_producer import RecordProducer
from streaming_job.contracts.topics import Topics
from streaming_job.log import watermarks
from streaming_job.log.end_offsets import with_retries
from streaming_job.log.partitioner import Partitioner
from streaming_job.log.watermarks import Watermarks
from streaming_job.runtime.failpoints import Failpoint
from streaming_job.transaction import producer
from streaming_job.transaction import writer as writer_module

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(2400)]

WaitFor = Callable[..., object]
REGISTERING = (*ALWAYS, Api.ADD_PARTITIONS, Api.ADD_OFFSETS)
"""What each transaction calls if the client registers its partitions."""
TIMEOUT_MS = 10_000
"""Timeout of Kafka transactions, ms: the least that the job allows."""
FAULTS, LONGEST_S = (100, TIMEOUT_MS / 1000) if THOROUGH else (8, 2.0)


@pytest.fixture(scope="module")
def proxy(stack: Endpoints) -> Iterator[Proxy]:
    assert stack.proxied is not None
    with Proxy(*stack.proxied) as result:
        yield result


@pytest.fixture
def bench(
    stack: Endpoints, proxy: Proxy, topic_names: Callable[[], Topics], tmp_path: Path
) -> Iterator[WriterBench]:
    """Writers that reach the broker through the proxy; the test reads without it."""
    assert stack.proxied is not None
    servers = f"{HOST}:{stack.proxied[0]}"
    writers = WriterBench(
        stack, topic_names(), tmp_path, bootstrap_servers=servers, transaction_timeout_ms=TIMEOUT_MS
    )
    yield writers
    writers.close()


@pytest.mark.parametrize("apis", [ALWAYS, REGISTERING], ids=["today", "before-4.0"])
def test_faults_in_sequence_lose_repeat_and_split_no_transaction(
    bench: WriterBench,
    proxy: Proxy,
    wait_for: WaitFor,
    monkeypatch: pytest.MonkeyPatch,
    apis: tuple[Api, ...],
) -> None:
    if apis != ALWAYS:  # as with several brokers, or those before Kafka 4.0
        monkeypatch.setattr(producer, "IMPLICIT", 99)
    writer = bench.writer()
    bench.write(writer, 1)
    commits = 1
    for fault in draw(random.Random(11), FAULTS, LONGEST_S, apis):
        before = len(proxy.injected)
        proxy.arm(fault)
        while len(proxy.injected) == before:  # a write may return before a request of the fault's API is sent
            commits += 1
            bench.write(writer, commits)
    wait_for(lambda: not proxy.late, deadline_s=60, what="what is still on its way")
    bench.write(writer, commits + 1)
    bench.assert_written_once(*range(1, commits + 2))


@pytest.mark.parametrize("kind", Kind)
def test_the_ends_of_the_tables_are_read_over_a_bad_network(
    stack: Endpoints,
    proxy: Proxy,
    topic_names: Callable[[], Topics],
    wait_for: WaitFor,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
) -> None:
    assert stack.proxied is not None
    monkeypatch.setattr(watermarks, "TIMEOUT_S", 0.5)
    topics = topic_names()
    broker.create(stack.bootstrap_servers, topics)
    names = (topics.profiles, topics.model_rollouts)
    producer = RecordProducer(stack.bootstrap_servers, Partitioner.MURMUR2)
    client = Watermarks({"bootstrap.servers": f"{HOST}:{stack.proxied[0]}"}, names)
    try:
        before = with_retries(lambda: client.last(names))  # new partitions have no leader for a moment
        for written in (1, 2):
            producer.produce(topics.model_rollouts, b"key", b"value", 0)
            producer.flush()
            injected = len(proxy.injected)
            proxy.arm(Fault(Api.LIST_OFFSETS, kind, 1.0))
            ends = with_retries(lambda: client.last(names))
            assert ends == before | {(topics.model_rollouts, 0): before[topics.model_rollouts, 0] + written}
            wait_for(lambda: len(proxy.injected) > injected and not proxy.late, what="the fault")  # noqa: B023
    finally:
        client.close()


@pytest.mark.parametrize("api", [Api.END_TRANSACTION, Api.COMMIT_OFFSETS])
def test_a_late_request_does_not_affect_the_next_transaction(
    bench: WriterBench, proxy: Proxy, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    """The delayed request arrives during the next transaction, after the transaction was written again."""
    writer = bench.writer()
    bench.write(writer, 1)
    proxy.arm(Fault(api, Kind.REQUEST_LATE, 3.0))
    bench.write(writer, 2)
    assert proxy.late

    def written() -> set[int]:
        return {
            int(dict(record.headers)["commit_id"]) for record in bench.log.read(bench.topics.fraud_alerts)
        }

    def reach(step: Failpoint) -> None:
        if step is Failpoint.SENT:
            wait_for(lambda: not proxy.late, what="the late request")
            # the late request has not committed transaction 3, which is still open
            assert written() == {1, 2}

    monkeypatch.setattr(writer_module, "reach", reach)
    bench.write(writer, 3)
    monkeypatch.undo()
    bench.assert_written_once(1, 2, 3)
    assert bench.new("next").written().commit_id == 3

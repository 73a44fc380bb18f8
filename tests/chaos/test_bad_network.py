"""Requests and answers of transactions that are lost, late or overtaken: each batch is still written once."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.sink_bench import SinkBench
from thoroughness import THOROUGH

from deploy.local.stack import Endpoints
from loadtests.faults.proxy import HOST, Api, Fault, Kind, Proxy, drawn
from streaming_job import sink as sink_module
from streaming_job.contracts.topics import Topics
from streaming_job.runtime.failpoints import Step

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(2400)]

WaitFor = Callable[..., object]
TIMEOUT_MS = 10_000
"""Of transactions: the least that the job allows."""
FAULTS, LONGEST_S = (100, TIMEOUT_MS / 1000) if THOROUGH else (8, 2.0)


@pytest.fixture(scope="module")
def proxy(stack: Endpoints) -> Iterator[Proxy]:
    assert stack.proxied is not None
    with Proxy(*stack.proxied) as made:
        yield made


@pytest.fixture
def bench(stack: Endpoints, proxy: Proxy, topic_names: Callable[[], Topics], tmp_path: Path) -> SinkBench:
    """A sink that reaches the broker through the proxy; the test itself looks past it."""
    assert stack.proxied is not None
    servers = f"{HOST}:{stack.proxied[0]}"
    return SinkBench(
        stack, topic_names(), tmp_path, bootstrap_servers=servers, transaction_timeout_ms=TIMEOUT_MS
    )


def test_faults_one_after_the_other_lose_double_and_tear_nothing(
    bench: SinkBench, proxy: Proxy, wait_for: WaitFor
) -> None:
    sink = bench.sink()
    bench.write(sink, 0)
    batches = 1
    for fault in drawn(random.Random(11), FAULTS, LONGEST_S):
        before = len(proxy.struck)
        proxy.arm(fault)
        while len(proxy.struck) == before:  # a request may take place after the write that made it
            bench.write(sink, batches)
            batches += 1
    wait_for(lambda: not proxy.late, deadline_s=60, what="what is still on its way")
    bench.write(sink, batches)
    bench.assert_written_once(*range(batches + 1))


@pytest.mark.parametrize("api", [Api.END_TRANSACTION, Api.COMMIT_OFFSETS])
def test_request_that_arrives_in_the_next_transaction_does_not_touch_it(
    bench: SinkBench, proxy: Proxy, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    """The client repeats it at once on another connection and takes that answer for the end of the matter."""
    sink = bench.sink()
    bench.write(sink, 0)
    proxy.arm(Fault(api, Kind.REQUEST_LATE, 3.0))
    assert bench.write(sink, 1)
    assert proxy.late
    held = Step.SENT if api is Api.END_TRANSACTION else Step.OFFSETS_ADDED

    def written() -> set[int]:
        return {int(dict(found.headers)["batch_id"]) for found in bench.log.read(bench.topics.fraud_alerts)}

    def reach(step: Step) -> None:
        if step is held:
            sink._producer._producer.flush(10)
            wait_for(lambda: not proxy.late, what="the late request")
            assert written() == {1, 0}  # it has not ended this transaction, half-written as it is

    monkeypatch.setattr(sink_module, "reach", reach)
    bench.write(sink, 2)
    monkeypatch.undo()
    bench.assert_written_once(0, 1, 2)
    assert bench.sink().last_marker().batch_id == 2

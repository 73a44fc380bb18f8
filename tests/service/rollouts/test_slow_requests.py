"""Requests that take long have threads of their own: a rollback never waits for them."""

import asyncio
import threading
from typing import Any

import httpx
import pytest
from test_rollout_routes import PROPOSAL, Api

from service.labels.routes import LABEL_EXAMPLE, label_routes
from service.rollouts import decisions
from streaming_job.labels.ledger import Ledger

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("path", ["/v1/decisions/c-1/t-1", "/v1/models?name=m"])
def test_a_rollback_does_not_wait_for_slow_reads(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FastAPI's pool has 40 threads: 60 reads that do not end would fill it."""
    api, end = Api(), threading.Event()

    def slow(*_: Any) -> Any:
        end.wait(30)
        return {} if path.startswith("/v1/decisions") else []

    monkeypatch.setattr(decisions, "explain", slow)
    monkeypatch.setattr(api.parts.registry, "versions", slow)
    api.see()

    async def scenario() -> tuple[list[int], int]:
        transport = httpx.ASGITransport(api.client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            headers = {"Idempotency-Key": "k1"}
            assert (await client.post("/v1/rollouts", json=PROPOSAL, headers=headers)).status_code == 201
            reads = [asyncio.create_task(client.get(path)) for _ in range(60)]
            await asyncio.sleep(0)
            body = {"type": "rolled_back", "reason": "because"}
            request = client.post("/v1/rollouts/r2/events", json=body, headers={"Idempotency-Key": "k2"})
            try:
                status = (await asyncio.wait_for(request, 10)).status_code
            finally:
                end.set()
            return [answer.status_code for answer in await asyncio.gather(*reads)], status

    reads, status = asyncio.run(scenario())
    assert status == 201
    assert (reads.count(200), reads.count(503)) == (4, 56)


def test_no_request_waits_for_labels_that_the_brokers_do_not_take() -> None:
    """All plain endpoints share a pool of 40 threads, `/readyz` and the metrics included."""
    api, end = Api(), threading.Event()

    class Slow(Ledger):
        def add(self, rows: Any) -> int:
            end.wait(30)
            return len(rows)

    api.app.include_router(label_routes(Slow("none", {}, "labels")))
    api.see()

    async def scenario() -> tuple[list[int], int]:
        transport = httpx.ASGITransport(api.client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            body = {"labels": [LABEL_EXAMPLE]}
            writes = [asyncio.create_task(client.post("/v1/labels", json=body)) for _ in range(60)]
            await asyncio.sleep(0.1)
            try:
                status = (await asyncio.wait_for(client.get("/v1/rollouts"), 10)).status_code
            finally:
                end.set()
            return [answer.status_code for answer in await asyncio.gather(*writes)], status

    writes, status = asyncio.run(scenario())
    assert status == 200
    assert (writes.count(201), writes.count(503)) == (8, 52)

"""Answers that clients share, and routes that need no broker."""

import asyncio
import threading

import pytest
from harness.local_client import LocalClient

from service.app import create_app
from service.health.routes import KEPT_S, CachedAnswer
from service.settings import ServiceSettings

pytestmark = pytest.mark.unit


class Counted:
    """Makes a new answer at each call, as soon as `may` is set."""

    def __init__(self) -> None:
        self.made = 0
        self.may = threading.Event()

    def __call__(self) -> bytes:
        assert self.may.wait(10)
        self.made += 1
        return str(self.made).encode()


def test_fifty_clients_share_one_answer_until_it_is_old() -> None:
    make, now = Counted(), [100.0]

    async def ask() -> None:
        shared = CachedAnswer(make, lambda: now[0])
        clients = [asyncio.create_task(shared.get()) for _ in range(50)]
        await asyncio.sleep(0)  # all clients wait
        make.may.set()
        assert set(await asyncio.gather(*clients)) == {b"1"}
        now[0] += KEPT_S / 2
        assert await shared.get() == b"1"
        now[0] += KEPT_S
        assert set(await asyncio.gather(*(shared.get() for _ in range(50)))) == {b"2"}

    asyncio.run(ask())
    assert make.made == 2


def test_a_failure_is_not_kept() -> None:
    answers = iter([ZeroDivisionError, b"well"])

    def make() -> bytes:
        answer = next(answers)
        if isinstance(answer, bytes):
            return answer
        raise answer

    async def ask() -> None:
        shared = CachedAnswer(make)
        with pytest.raises(ZeroDivisionError):
            await shared.get()
        assert await shared.get() == b"well"

    asyncio.run(ask())


@pytest.fixture
def client() -> LocalClient:
    """Client of a sidecar whose threads were never started, so that it knows nothing."""
    return LocalClient(create_app(ServiceSettings(bootstrap_servers="127.0.0.1:1")))


def test_liveness_needs_no_broker(client: LocalClient) -> None:
    for path in ("/livez", "/healthz"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_readiness_lists_its_checks_when_asked(client: LocalClient) -> None:
    short = client.get("/readyz")
    assert (short.status_code, sorted(short.json())) == (503, ["ready", "reasons"])
    for question in ("verbose", "verbose=1", "verbose=true"):
        content = client.get(f"/readyz?{question}").json()
        assert {check["name"]: check["ok"] for check in content["checks"]}["broker"] is False
    assert "checks" not in client.get("/readyz?verbose=false").json()


def test_status_without_data_is_unknown(client: LocalClient) -> None:
    content = client.get("/v1/status").json()
    assert content["verdict"] == "UNKNOWN"
    assert {reason["code"] for reason in content["reasons"]} == {"broker_unreachable", "progress_incomplete"}
    assert all(reason["since"] <= content["now"] for reason in content["reasons"])
    assert content["inputs"] == []
    assert content["rollout"] == {"champion": None, "open": None}
    assert content["profiles"] == {"change_age_s": None, "heartbeat_age_s": None}

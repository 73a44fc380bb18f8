"""Limits of a body's size and of a caller's rate."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.local_client import LocalClient
from hypothesis import given, settings
from hypothesis import strategies as st
from security_world import bearer, client, secrets_of, sidecar

from service.labels.routes import MOST, LabelBody, LabelsBody
from service.security.limits import TokenBuckets, key_of
from service.security.roles import CALLER, Caller, Operator, Role
from service.settings import ServiceSettings

pytestmark = pytest.mark.unit


def taking_bodies(**settings: int) -> LocalClient:
    app = sidecar(**settings)

    @app.post("/take")
    def take(_: Operator, body: dict[str, str]) -> int:
        return sum(len(value) for value in body.values())

    return LocalClient(app, raise_server_exceptions=False, headers={"Content-Type": "application/json"})


LIMIT = 64 * 1024


def parts(count: int) -> Iterator[bytes]:
    yield b'{"a": "'
    yield from [b"x" * 1000] * count
    yield b'"}'


def test_bodies_up_to_the_limit_are_accepted() -> None:
    whole = b'{"a": "%s"}' % (b"x" * (LIMIT - 9))
    asking = taking_bodies(max_body_bytes=LIMIT)
    answers = [asking.post("/take", content=body) for body in (whole, whole[:-2] + b'x"}')]
    assert [answer.status_code for answer in answers] == [200, 413]
    assert answers[0].json() == LIMIT - 9
    assert answers[1].json()["code"] == "body_too_large"


def test_the_limit_holds_for_bodies_that_do_not_state_their_size() -> None:
    asking = taking_bodies(max_body_bytes=LIMIT)
    assert asking.post("/take", content=parts(60)).json() == 60_000
    assert asking.post("/take", content=parts(70)).status_code == 413


def test_as_many_labels_as_a_request_may_have_fit_into_a_body() -> None:
    longest = {
        "transaction_id": "t" * 64, "card_id": "c" * 64, "kind": "verdict", "verdict": "genuine",
        "reason": "unusual_but_plausible", "occurred_at": 1_763_873_600_000, "event_time": 1_763_873_600_000,
        "maturity": "preliminary",
    }  # fmt: skip
    assert longest.keys() == LabelBody.model_fields.keys()
    body = json.dumps({"labels": [longest] * MOST}, indent=2)
    assert len(LabelsBody.model_validate_json(body).labels) == MOST
    assert len(body) <= ServiceSettings(bootstrap_servers="nowhere").max_body_bytes


@pytest.mark.parametrize("stated", ["-5", "x", "9" * 5000])
def test_invalid_sizes_do_no_harm(stated: str) -> None:
    answer = taking_bodies().post("/take", content=b"{}", headers={"Content-Length": stated})
    assert answer.status_code in (200, 413), answer.text


def test_a_caller_with_too_many_requests_is_limited_and_others_are_not(tmp_path: Path) -> None:
    secrets = secrets_of(tmp_path / "tokens.json")
    asking = client(sidecar(tmp_path / "tokens.json", rate_per_s=0.01, rate_burst=3))
    viewer, admin = bearer(secrets["viewer"]), bearer(secrets["admin"])
    codes = [asking.get("/metrics", headers=viewer).status_code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429]
    refused = asking.get("/v1/progress", headers=viewer)
    assert refused.json()["code"] == "rate_limited"
    assert 1 <= int(refused.headers["retry-after"]) <= 100
    assert asking.get("/metrics", headers=admin).status_code == 200
    # requests with wrong tokens count for their address, whatever the tokens are
    codes = [asking.get("/metrics", headers=bearer(f"wrong-{n}")).status_code for n in range(5)]
    assert codes == [401, 401, 401, 429, 429]
    assert asking.get("/healthz").status_code == 200  # if a probe were refused, the process would be killed


def test_rate_0_is_no_limit() -> None:
    asking = LocalClient(sidecar(rate_per_s=0, rate_burst=1))
    assert {asking.get("/metrics").status_code for _ in range(20)} == {200}


@settings(deadline=None)
@given(
    rate=st.floats(0.1, 100),
    burst=st.integers(1, 50),
    gaps=st.lists(st.floats(0, 3), min_size=1, max_size=80),
)
def test_no_caller_gets_more_than_burst_and_rate(rate: float, burst: int, gaps: list[float]) -> None:
    buckets, now, taken = TokenBuckets(rate, burst), 0.0, 0
    for gap in gaps:
        now += gap
        wait = buckets.wait_s("a", now)
        if wait == 0:
            taken += 1
        else:
            assert 0 < wait <= 1 / rate + 1e-9
            now += wait * (1 + 1e-9) + 1e-9
            assert buckets.wait_s("a", now) == 0  # a caller that waits as told is served
            taken += 1
        assert taken <= burst + rate * now + 1e-6


def test_buckets_are_bounded() -> None:
    buckets = TokenBuckets(1, 1, most=100)
    for number in range(1000):
        assert buckets.wait_s(f"address {number}", 0.0) == 0
    assert len(buckets) == 100
    assert buckets.wait_s("address 999", 0.0) > 0


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("10.0.0.7", "address 10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "address 2001:db8:1:2::/64"),
        ("::ffff:10.0.0.7", "address ::ffff:10.0.0.7"),
        ("odd", "address odd"),
    ],
)
def test_each_caller_has_its_own_bucket(address: str, key: str) -> None:
    assert key_of({"client": (address, 1)}) == key
    assert key_of({"client": (address, 1), CALLER: Caller("a", Role.VIEWER, address)}) == "token a"
    assert key_of({"client": (address, 1), CALLER: Caller("local", Role.ADMIN, address)}) == key

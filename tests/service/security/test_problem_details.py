"""Every error is a problem (RFC 9457) without internals, with the security headers."""

import re
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from security_world import bearer, client, secrets_of, sidecar

from feature_store.errors import FraudError
from service.security.card_ids import for_caller
from service.security.headers import SAFE
from service.security.roles import Anyone, Caller, Operator, Role

pytestmark = pytest.mark.unit
MEMBERS = {"type", "title", "status", "detail", "code", "instance"}


class ConflictedError(FraudError):
    status, check = 409, "stale"


class NamelessError(FraudError):
    check = ""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[TestClient, dict[str, str]]:
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    headers = bearer(secrets_of(path)["admin"])
    app: FastAPI = sidecar(path, rate_per_s=0)

    @app.get("/breaks/{how}")
    def breaks(how: str, _: Anyone) -> None:
        known = {
            "ours": ConflictedError("seq is 4; look, then repeat"),
            "plain": FraudError("no room; make some"),
            "nameless": NamelessError("no room; make some"),
            "kafka": KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)),
        }
        raise known.get(how, RuntimeError("secret-of-the-inside"))

    @app.post("/bodies")
    def bodies(body: dict[str, int], _: Operator, at: int = 0) -> int:
        return at

    return client(app), headers


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing/here", 404, "not_found"),
        ("DELETE", "/metrics", 405, "method_not_allowed"),
        ("GET", "/v1/audit?limit=0", 422, "invalid_request"),
        ("GET", "/v1/audit?before=x4111111111111111", 422, "invalid_request"),
        ("POST", "/bodies", 422, "invalid_request"),
        ("GET", "/v1/progress", 404, "no_progress"),
        ("GET", "/breaks/ours", 409, "stale"),
        ("GET", "/breaks/plain", 500, "failed"),
        ("GET", "/breaks/nameless", 500, "failed"),
        ("GET", "/breaks/kafka", 503, "broker_unavailable"),
        ("GET", "/breaks/otherwise", 500, "internal_error"),
    ],
)
def test_every_error_is_a_problem(
    world: tuple[TestClient, dict[str, str]], method: str, path: str, status: int, code: str
) -> None:
    asking, headers = world
    answer = asking.request(method, path, headers=headers)
    body = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    assert set(body) >= MEMBERS
    assert body["instance"] == path.partition("?")[0]
    assert body["type"] == f"/docs#{code}"
    for secret in ("Traceback", "secret-of-the-inside", "4111111111111111", ".py"):
        assert secret not in answer.text
    assert {name: answer.headers.get(name) for name in SAFE} == SAFE
    if status == 405:
        assert answer.headers["allow"] == "GET"


def test_pages_and_answers_have_the_security_headers(world: tuple[TestClient, dict[str, str]]) -> None:
    asking, headers = world
    for path in ("/", "/metrics", "/v1/audit", "/healthz"):
        assert {name: asking.get(path, headers=headers).headers.get(name) for name in SAFE} == SAFE
    policy = asking.get("/docs").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert not re.search(r"unsafe|https?:|\*", policy)
    assert asking.get("/docs").headers["cache-control"] == "max-age=300"
    assert "strict-transport-security" not in asking.get("/").headers


def test_the_audit_log_is_returned_page_by_page(world: tuple[TestClient, dict[str, str]]) -> None:
    asking, headers = world
    first = asking.get("/v1/audit?limit=3", headers=headers).json()
    rest = asking.get(f"/v1/audit?limit=3&before={first['next']}", headers=headers).json()
    targets = [record["record"]["target"] for page in (first, rest) for record in page["records"]]
    assert targets == ["r-4", "r-3", "r-2", "r-1", "r-0"]
    assert rest["next"] is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORD = (
    st.text(min_size=1, max_size=30)
    | st.integers().map(str)
    | st.sampled_from(["nan", "%00", "..", "0x", "-1"])
)


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_request_breaks_the_sidecar(world: tuple[TestClient, dict[str, str]], data: st.DataObject) -> None:
    """Every operation of the OpenAPI document, with random parameters and bodies: never a 500."""
    from urllib.parse import quote

    asking, headers = world
    paths: dict[str, Any] = asking.get("/openapi.json").json()["paths"]
    operations = [(path, method) for path in paths for method in paths[path] if "/breaks" not in path]
    path, method = data.draw(st.sampled_from(sorted(operations)))
    operation = paths[path][method]
    given_ = {
        parameter["name"]: data.draw(WORD)
        for parameter in operation.get("parameters", [])
        if data.draw(st.booleans())
    }
    filled = re.sub(r"\{([^}]*)\}", lambda _: quote(data.draw(WORD), safe=""), path)
    if data.draw(st.booleans()):
        options: dict[str, Any] = {"content": data.draw(st.binary(max_size=200))}
    else:
        import json

        options = {
            "content": json.dumps(data.draw(JSON)).encode(),
            "headers": {"Content-Type": "application/json"},
        }
    options["headers"] = {**headers, **options.get("headers", {})}
    answer = asking.request(method.upper(), filled, params=given_, **options)
    assert answer.status_code < 500 or answer.status_code == 503, (method, filled, given_, options)
    assert {name for name in SAFE if name not in answer.headers} == set()
    if answer.status_code >= 400 and path != "/readyz":
        assert set(answer.json()) >= MEMBERS


@pytest.mark.parametrize(
    ("role", "shown"), [(None, "ab***yz"), (Role.VIEWER, "ab***yz"), (Role.OPERATOR, "abcdxyz")]
)
def test_card_ids_are_for_operators(role: Role | None, shown: str) -> None:
    caller = None if role is None else Caller("a", role, "")
    value = {"alerts": [{"card_id": "abcdxyz", "n": 1}], "deep": ({"x": {"card": "abcdxyz"}},)}
    masked = for_caller(value, caller)
    assert masked["alerts"][0] == {"card_id": shown, "n": 1}
    assert masked["deep"][0]["x"]["card"] == shown

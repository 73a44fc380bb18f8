"""Every error is a problem (RFC 9457) without internals, with the security headers."""

import gzip
import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from confluent_kafka import KafkaError, KafkaException
from fastapi import FastAPI
from fastapi.testclient import TestClient
from harness.memory_rollouts import ADA, START, KnownModels, MemoryRollouts
from harness.progress_records import progress
from hypothesis import given, settings
from hypothesis import strategies as st
from security_world import NOW_S, bearer, client, secrets_of, sidecar

from feature_store.errors import FraudError
from models.rollouts.events import Type
from service import app as application
from service.labels.routes import LABEL_EXAMPLE
from service.problem_codes import TABLE
from service.progress_reader import ProgressReader
from service.rollouts import decisions
from service.rollouts.bodies import EVENT_EXAMPLE, PROPOSAL_EXAMPLE, ProposalBody
from service.rollouts.desk import Desk
from service.rollouts.history import Record
from service.rollouts.parts import RolloutParts
from service.rollouts.reader import RolloutReader
from service.rollouts.reading import Job
from service.rollouts.requests import Step
from service.security.card_ids import for_caller
from service.security.headers import SAFE
from service.security.roles import Anyone, Caller, Operator, Role

pytestmark = pytest.mark.unit
MEMBERS = {"type", "title", "status", "detail", "code", "instance"}
DOCUMENTED = {code for row in TABLE for code in row.codes}
LABELS = json.dumps({"labels": [LABEL_EXAMPLE]}).encode()
AS_JSON = {"Content-Type": "application/json"}


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
        ("GET", "/v1/status/", 404, "not_found"),
        ("POST", "/v1/labels/", 404, "not_found"),
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
    assert body["type"] == f"/openapi.json#{code}"
    for secret in ("Traceback", "secret-of-the-inside", "4111111111111111", ".py"):
        assert secret not in answer.text
    assert {name: answer.headers.get(name) for name in SAFE} == SAFE
    if status == 405:
        assert answer.headers["allow"] == "GET, HEAD"


def test_pages_and_answers_have_the_security_headers(world: tuple[TestClient, dict[str, str]]) -> None:
    asking, headers = world
    for path in ("/", "/metrics", "/v1/audit", "/healthz"):
        assert {name: asking.get(path, headers=headers).headers.get(name) for name in SAFE} == SAFE
    policy = asking.get("/openapi.json").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert not re.search(r"unsafe|https?:|\*", policy)
    assert asking.get("/openapi.json").headers["cache-control"] == "max-age=300"
    assert "strict-transport-security" not in asking.get("/").headers


def test_the_audit_log_is_returned_page_by_page(world: tuple[TestClient, dict[str, str]]) -> None:
    asking, headers = world
    first = asking.get("/v1/audit?limit=3", headers=headers).json()
    rest = asking.get(f"/v1/audit?limit=3&before={first['next']}", headers=headers).json()
    targets = [record["record"]["target"] for page in (first, rest) for record in page["records"]]
    assert targets == ["r-4", "r-3", "r-2", "r-1", "r-0"]
    assert rest["next"] is None


class KnownParts(RolloutParts):
    """Rollouts in memory: r1 decides, r2 runs as shadow; the job has written progress."""

    log = MemoryRollouts()
    begun: tuple[Record, ...]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.registry = KnownModels()
        self.desk = Desk(self.settings, lambda: NOW_S, lambda: Job({}), self.registry, self.log)
        self.desk.propose(ProposalBody(**PROPOSAL_EXAMPLE, rollout_id="r2").proposal("p"), ADA)
        self.desk.take(Step("r2", Type.SHADOW_STARTED, "because", "s"), ADA)
        KnownParts.begun = tuple(self.log.records)


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, dict[str, str]]]:
    """A sidecar whose handlers find rollouts, models and each transaction, and write labels."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    headers = bearer(secrets_of(path)["admin"])
    transaction = Mock(
        partition=lambda: 0, offset=lambda: 5, timestamp=lambda: (1, START), value=lambda: b'{"amount": -1}'
    )
    found = {"transactions": [transaction]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(application, "RolloutParts", KnownParts)
        patch.setattr(RolloutReader, "history", property(lambda _: KnownParts.log.history()))
        patch.setattr(RolloutReader, "waiting_for", None)
        known = property(lambda _: {0: progress()}, lambda *_: None)
        patch.setattr(ProgressReader, "groups", known, raising=False)
        patch.setattr(application.Ledger, "_open", Mock())
        patch.setattr(decisions.topic_reader, "partitions", lambda *_: [0])
        patch.setattr(decisions._Search, "records", lambda _, topic, __: found.get(topic, []))
        yield client(sidecar(path, rate_per_s=0)), headers


TEXT = st.text(st.characters(codec=None), max_size=20)
"""Texts as JSON may have them: halves of surrogate pairs included."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ODD = st.sampled_from([None, -1, 10**20, 10**400, float("inf"), "\ud800"])
WORD = (
    st.text(min_size=1, max_size=30)
    | st.integers().map(str)
    | st.sampled_from(["nan", "%00", "..", "0x", "-1"])
)
VALID = {"rollout_id": "r2", "If-Match": "2", "Idempotency-Key": "k"}


def parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each dict or list in a value, with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield value, key
        yield from parts(part)


@st.composite
def altered(draw: st.DrawFn, value: Any) -> Any:
    """The value, or the value with one of its parts, at any depth, replaced or left out."""
    result = deepcopy(value)
    whole, key = draw(st.sampled_from(list(parts(result))))
    change = draw(st.sampled_from(["none", "left out", "odd", "odd", "random"]))
    if change == "left out":
        del whole[key]
    elif change != "none":
        whole[key] = draw(ODD if change == "odd" else JSON)
    return result


BODIES = {
    "/v1/rollouts": altered(PROPOSAL_EXAMPLE),
    "/v1/rollouts/{rollout_id}/events": st.sampled_from(Type).flatmap(
        lambda kind: altered({**EVENT_EXAMPLE, "type": kind})
    ),
    "/v1/labels": altered({"labels": [LABEL_EXAMPLE]}),
}


AWAY: dict[tuple[str, str], str | None] = {("get", "/readyz"): None}
"""Operations whose server is away in `working`, with the problem's code: only they may answer 503."""


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_request_breaks_the_sidecar(
    working: tuple[TestClient, dict[str, str]], data: st.DataObject
) -> None:
    """Every operation of the OpenAPI document, with random parameters, headers and bodies: never a 500."""

    def word(name: str) -> str:
        return VALID[name] if name in VALID and data.draw(st.booleans()) else data.draw(WORD)

    asking, headers = working
    paths: dict[str, Any] = asking.get("/openapi.json").json()["paths"]
    operations = sorted((path, method) for path in paths for method in paths[path])
    changes = [operation for operation in operations if operation[1] == "post"]
    path, method = data.draw(st.sampled_from(operations) | st.sampled_from(changes))
    KnownParts.log.records[:] = KnownParts.begun[: 2 if path == "/v1/rollouts" else 4]
    given_: dict[str, dict[str, str]] = {"path": {}, "query": {}, "header": {}}
    for parameter in paths[path][method].get("parameters", []):
        if parameter["required"] or data.draw(st.booleans()):
            given_[parameter["in"]][parameter["name"]] = word(parameter["name"])
    filled = path.format(**{name: quote(text, safe="") for name, text in given_["path"].items()})
    headers = headers | {name: text.encode() for name, text in given_["header"].items()}
    if headers_left_out := data.draw(st.integers(0, 9)) == 7:
        headers = {"Authorization": headers["Authorization"]}
    whole = JSON if headers_left_out or data.draw(st.integers(0, 9)) == 7 else BODIES.get(path, JSON)
    body = json.dumps(data.draw(whole)).encode()
    if data.draw(st.integers(0, 9)) == 7:
        body = data.draw(st.binary(max_size=200))
    if data.draw(st.integers(0, 9)) != 7:
        headers["Content-Type"] = b"application/json"
    answer = asking.request(method.upper(), filled, params=given_["query"], headers=headers, content=body)
    asked = (method, filled, given_, body, answer.text)
    if answer.status_code == 503:
        assert (method, path) in AWAY, asked
        assert answer.json().get("code") == AWAY[method, path], asked
    assert answer.status_code < 500 or answer.status_code == 503, asked
    assert {name for name in SAFE if name not in answer.headers} == set()
    if answer.status_code >= 400 and path != "/readyz":
        assert set(answer.json()) >= MEMBERS
        assert answer.json()["code"] in DOCUMENTED


ODD_BODIES: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "gzip": (gzip.compress(LABELS), {"Content-Encoding": "gzip"}, 415, "unsupported_encoding"),
    "named br": (LABELS, {"Content-Encoding": "br, gzip"}, 415, "unsupported_encoding"),
    "gzip without a word": (gzip.compress(LABELS), {}, 422, "invalid_request"),
    "Latin-1": ('{"labels": "\xe9"}'.encode("latin-1"), {}, 422, "invalid_request"),
    "deeply nested": (b"[" * 3_000, {}, 422, "invalid_request"),
    "nested and whole": (b"[" * 20_000 + b"]" * 20_000, {}, 422, "invalid_request"),
    "truncated": (LABELS[:-5], {}, 422, "invalid_request"),
    "a number of many digits": (b'{"labels": ' + b"9" * 5_000 + b"}", {}, 422, "invalid_request"),
    "a form": (b"labels=1", {"Content-Type": "application/x-www-form-urlencoded"}, 422, "invalid_request"),
    "a broken form": (b"--x", {"Content-Type": "multipart/form-data"}, 422, "invalid_request"),
    "empty": (b"", {}, 422, "invalid_request"),
    "too large": (b" " * 2_000_000, {}, 413, "body_too_large"),
}


@pytest.mark.parametrize("name", ODD_BODIES)
def test_odd_bodies_get_a_documented_code(working: tuple[TestClient, dict[str, str]], name: str) -> None:
    asking, headers = working
    content, more, status, code = ODD_BODIES[name]
    given_ = {**headers, **AS_JSON, "Idempotency-Key": "k", **more}
    answer = asking.post("/v1/labels", headers=given_, content=content)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert code in DOCUMENTED
    assert set(answer.json()) >= MEMBERS


def test_a_body_may_name_the_encoding_that_is_none(working: tuple[TestClient, dict[str, str]]) -> None:
    asking, headers = working
    given_ = {**headers, **AS_JSON, "Content-Encoding": "identity"}
    assert asking.post("/v1/labels", headers=given_, content=LABELS).status_code < 300


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PATCH", "PUT", "DELETE", "TRACE", "BREW"])
@pytest.mark.parametrize(
    "path", ["/", "/livez", "/metrics", "/v1/labels", "/v1/rollouts", "/none", "//", "/%00"]
)
def test_odd_methods_get_a_documented_code(
    working: tuple[TestClient, dict[str, str]], method: str, path: str
) -> None:
    asking, headers = working
    answer = asking.request(method, path, headers=headers)
    if method == "HEAD":
        assert answer.content == b""
    elif answer.status_code >= 400:
        assert answer.json()["code"] in DOCUMENTED
    assert answer.status_code in (200, 404, 405)


def test_every_path_that_serves_get_serves_head(working: tuple[TestClient, dict[str, str]]) -> None:
    """Load balancers and monitors that probe with HEAD see what GET would answer, without the body."""
    asking, headers = working
    paths = asking.get("/openapi.json").json()["paths"]
    probed = [path for path in paths if "get" in paths[path] and "{" not in path]
    assert {"/livez", "/readyz", "/metrics"} <= set(probed)
    for path in ("/", "/openapi.json", *probed):
        got, head = asking.get(path, headers=headers), asking.head(path, headers=headers)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert head.headers["content-type"] == got.headers["content-type"]
        assert {name: head.headers.get(name) for name in SAFE} == {
            name: got.headers.get(name) for name in SAFE
        }
    assert asking.head("/v1/audit").status_code == 401
    assert asking.head("/v1/labels", headers=headers).status_code == 405


@pytest.mark.parametrize(
    ("role", "shown"), [(None, "ab***yz"), (Role.VIEWER, "ab***yz"), (Role.OPERATOR, "abcdxyz")]
)
def test_card_ids_are_for_operators(role: Role | None, shown: str) -> None:
    caller = None if role is None else Caller("a", role, "")
    value = {"alerts": [{"card_id": "abcdxyz", "n": 1}], "deep": ({"x": {"card": "abcdxyz"}},)}
    masked = for_caller(value, caller)
    assert masked["alerts"][0] == {"card_id": shown, "n": 1}
    assert masked["deep"][0]["x"]["card"] == shown

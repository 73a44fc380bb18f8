"""The endpoints of rollouts over a log in memory; tests/service/security tests the role of each route."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from harness.memory_rollouts import BOB, START, KnownModels, MemoryRollouts, proposal
from trial_progress import COUNTS, trial_progress

from models.rollouts.events import Type
from service.progress_reader import ProgressReader
from service.rollouts import decisions, examples
from service.rollouts.desk import Desk
from service.rollouts.guard_watch import GuardWatch
from service.rollouts.history import History
from service.rollouts.parts import RolloutParts
from service.rollouts.reader import RolloutReader
from service.rollouts.routes import rollout_routes
from service.security import problems
from service.security.roles import CALLER, Caller, Role
from service.settings import ServiceSettings

pytestmark = pytest.mark.unit

PROPOSAL = {
    "reason": "a better one",
    "rollout_id": "r2",
    "challengers": [
        {"name": "next", "model": "card-fraud/2", "policy": {"threshold": 0.5, "max_count_5m": 6}}
    ],
}


class KnownProgress(ProgressReader):
    """Progress that is given, not read."""

    why: str | None = None

    @property
    def waiting_for(self) -> str | None:
        return self.why


class KnownReader(RolloutReader):
    """A reader of the log in memory."""

    log: MemoryRollouts
    why: str | None = None

    @property
    def history(self) -> History:
        return self.log.history()

    @property
    def waiting_for(self) -> str | None:
        return self.why


class Api:
    """The endpoints with their desk, log and progress."""

    def __init__(self) -> None:
        settings = ServiceSettings(bootstrap_servers="none")
        self.log, self.progress = MemoryRollouts(), KnownProgress(settings)
        self.parts = RolloutParts(settings, self.progress, lambda: START / 1000)
        self.parts.registry = KnownModels()
        self.reader = KnownReader(settings, dict)
        self.reader.log = self.log
        self.parts.reader = self.reader
        self.parts.desk = Desk(settings, lambda: START / 1000, self.parts.job, self.parts.registry, self.log)
        self.caller = Caller("bob", Role.ADMIN, "127.0.0.1")
        app = FastAPI()
        problems.install(app)
        app.include_router(rollout_routes(self.parts))

        async def as_caller(scope: Any, receive: Any, send: Any) -> None:
            scope[CALLER] = self.caller
            await app(scope, receive, send)

        self.app = app
        self.client = TestClient(as_caller)

    def see(self, counts: dict[str, Any] = COUNTS, **changes: Any) -> None:
        """Set the progress of the job."""
        self.progress.groups = {0: trial_progress("r2", {"next": counts}, written_at=START, **changes)}

    def propose(self, **changes: Any) -> Any:
        return self.client.post("/v1/rollouts", json=PROPOSAL | changes, headers={"Idempotency-Key": "k1"})

    def event(self, kind: str, seq: object = None, key: str | None = None, **fields: Any) -> Any:
        headers = {"Idempotency-Key": key or f"{kind}-{seq}"}
        headers |= {} if seq is None else {"If-Match": f'"{seq}"'}
        body = {"type": kind, "reason": "because", **fields}
        return self.client.post("/v1/rollouts/r2/events", json=body, headers=headers)


@pytest.fixture
def api() -> Iterator[Api]:
    result = Api()
    result.see()
    yield result
    result.client.close()


def test_a_rollout_from_proposal_to_promotion(api: Api) -> None:
    result = api.propose()
    assert (result.status_code, result.headers["ETag"], result.headers["Location"]) == (
        201,
        '"1"',
        "/v1/rollouts/r2",
    )
    for seq, kind in enumerate(("shadow_started", "canary_set", "paused", "resumed", "promoted"), start=1):
        answer = api.event(kind, seq)
        assert answer.status_code == 201, answer.text
        assert answer.json()["seq"] == seq + 1
    shown = api.client.get("/v1/rollouts/r2").json()
    assert (shown["phase"], shown["is_deciding"], shown["allowed"]) == ("promoted", True, ["withdrawn"])
    assert [event["actor"] for event in shown["events"]] == ["bob"] * 6
    everything = api.client.get("/v1/rollouts").json()
    assert [rollout["rollout_id"] for rollout in everything["rollouts"]] == ["r2", "r1"]
    assert (everything["open"], everything["champion"]["model"]["version"]) == (None, "2")


def test_a_repeated_request_gets_the_same_answer_with_status_200(api: Api) -> None:
    first, again = api.propose(), api.propose()
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json() | {"repeated": True}


@pytest.mark.parametrize("name", ["märz", "三月", "a b"])
def test_a_rollout_may_have_any_printable_name(api: Api, name: str) -> None:
    """The command line takes any, and a default one begins with the model's name."""
    api.parts.desk.propose(proposal(rollout_id=name), BOB)
    headers = {"Idempotency-Key": "k2"}
    path, body = f"/v1/rollouts/{quote(name)}", {"type": "rolled_back", "reason": "because"}
    answer = api.client.post(f"{path}/events", json=body, headers=headers)
    assert (answer.status_code, answer.json()["rollout_id"]) == (201, name), answer.text
    assert answer.headers["Location"] == path
    assert api.client.get(answer.headers["Location"]).json()["phase"] == "rolled_back"


@pytest.mark.parametrize(
    ("ask", "status", "code"),
    [
        (lambda api: api.event("shadow_started", 1, "other"), 409, "seq"),
        (lambda api: api.event("resumed", 2), 409, "rollout_conflict"),
        (lambda api: api.event("shadow_started", 2), 409, "rollout_conflict"),
        (lambda api: api.event("paused"), 428, "if_match_missing"),
        (lambda api: api.event("paused", "*"), 412, "if_match_unknown"),
        (lambda api: api.event("paused", "two"), 412, "if_match_unknown"),
        (lambda api: api.event("paused", 2, "shadow_started-1"), 422, "idempotency_key"),
        (lambda api: api.event("breached", 2), 422, "invalid_request"),
        (lambda api: api.event("canary_set", 2, share_bp=0), 422, "invalid_request"),
        (lambda api: api.event("canary_set", 2, challenger="who"), 422, "challenger"),
        (lambda api: api.propose(rollout_id="r3"), 422, "idempotency_key"),
        (lambda api: api.propose(more=1), 422, "invalid_request"),
        (lambda api: api.propose(guards={"rules": [{"name": "luck"}]}), 422, "guards"),
        (lambda api: api.client.post("/v1/rollouts", json=PROPOSAL), 422, "invalid_request"),
        (lambda api: api.client.get("/v1/rollouts/r9"), 404, "unknown_rollout"),
        (lambda api: api.client.get("/v1/rollouts/r9/verdict"), 404, "unknown_rollout"),
    ],
)
def test_a_refusal_is_a_problem_that_names_its_check(
    api: Api, ask: Callable[[Api], Any], status: int, code: str
) -> None:
    api.propose()
    api.event("shadow_started", 1)
    count = len(api.log.records)
    answer = ask(api)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert set(answer.json()) >= {"type", "title", "status", "detail", "code", "instance"}
    assert len(api.log.records) == count


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        ({"threshold": 2, "max_count_5m": 6}, "no probability"),
        ({"threshold": 0.5, "max_count_5m": 6, "treshold": 1}, "no 'treshold'"),
        ({"max_count_5m": 6}, "has no 'threshold'; give it"),
        ({"threshold": 0.5}, "has no 'max_count_5m'; give it"),
        ({"threshold": "high", "max_count_5m": 6}, "threshold 'high' is no number"),
        ({"threshold": True, "max_count_5m": 6}, "threshold True is no number"),
        ({"threshold": 0.5, "max_count_5m": 6.9}, "max_count_5m 6.9 is no whole number"),
        ({"threshold": 10**400, "max_count_5m": 6}, "the policy has a bad value"),
        ({"threshold": 0.5, "max_count_5m": None}, "max_count_5m is null"),
    ],
)
def test_a_bad_policy_is_refused_by_its_field(api: Api, policy: dict[str, Any], match: str) -> None:
    answer = api.propose(challengers=[PROPOSAL["challengers"][0] | {"policy": policy}])  # type: ignore[index]
    assert (answer.status_code, answer.json()["code"]) == (422, "policy"), answer.text
    assert match in answer.json()["detail"]
    assert api.log.refusals == [("rollout.proposed", "r2", "bob", "policy")]


@pytest.mark.parametrize("limit", [2**53, 10**20])
def test_a_number_beyond_the_contract_is_refused(api: Api, limit: int) -> None:
    policy = {"threshold": 0.5, "max_count_5m": limit}
    answer = api.propose(challengers=[PROPOSAL["challengers"][0] | {"policy": policy}])  # type: ignore[index]
    assert (answer.status_code, answer.json()["code"]) == (422, "contract"), answer.text
    assert "not a model-rollout.v2: " in answer.json()["detail"]


def test_an_event_is_pending_until_every_group_has_applied_it(
    api: Api,
) -> None:
    api.propose()
    offset = api.log.history().of("r2")[0].offset
    applied = {"rollout_id": "r2", "seq": 1, "type": "proposed", "offset": offset, "held_from": {"1": 80}}
    api.see(folded=offset + 1, key_groups=2, applied=[applied])
    (event,) = api.client.get("/v1/rollouts/r2").json()["events"]
    assert (event["state"], event["groups"]) == ("pending", {"applied": 1, "of": 2})
    api.progress.groups[1] = api.progress.groups[0] | {
        "key_group": 1,
        "applied": [applied | {"held_from": {"0": 81}}],
    }
    (event,) = api.client.get("/v1/rollouts/r2").json()["events"]
    assert (event["state"], event["held_from"]) == ("applied", {"0": 81, "1": 80})


def test_promote_and_withdraw_need_an_admin_rollback_an_operator(api: Api) -> None:
    api.propose()
    api.caller = Caller("ada", Role.OPERATOR, "127.0.0.1")
    for kind in ("promoted", "withdrawn"):
        answer = api.event(kind, 1)
        assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_role")
    assert api.event("rolled_back").status_code == 201
    api.caller = Caller("eve", Role.VIEWER, "127.0.0.1")
    assert api.event("rolled_back").status_code == 403
    assert api.client.get("/v1/rollouts/r2").status_code == 200


def test_the_verdict_follows_from_the_progress_and_is_repeatable(api: Api) -> None:
    api.propose()
    api.event("shadow_started", 1)
    result = api.client.get("/v1/rollouts/r2/verdict").json()
    assert (result["verdict"], result["commits"], result["since"]) == ("insufficient", {"0": 7}, None)
    api.parts.guards = GuardWatch(
        api.log.history, lambda: api.progress.groups, api.parts.desk, labels=api.parts.label_counts
    )
    api.parts.guards.look()
    assert api.client.get("/v1/rollouts/r2/verdict").json() == result | {"since": START}
    verdicts = {(rollout, challenger, verdict) for rollout, challenger, _, verdict in api.parts.findings()}
    assert ("r2", "next", "insufficient") in verdicts


def test_no_verdict_is_exported_once_the_guards_are_not_watched(api: Api) -> None:
    """Else the last verdict would look current for ever; the alert on an absent metric notices its end."""
    api.propose()
    api.event("shadow_started", 1)
    watch = GuardWatch(
        api.log.history, lambda: api.progress.groups, api.parts.desk, labels=api.parts.label_counts
    )
    api.parts.guards = watch
    watch.look()
    assert list(api.parts.findings())
    watch.start()
    watch.stop()
    assert watch.fault is not None
    assert not list(api.parts.findings())


@pytest.mark.parametrize("reader", ["reader", "progress"])
def test_no_verdict_is_exported_while_rollouts_or_progress_cannot_be_read(api: Api, reader: str) -> None:
    api.propose()
    api.event("shadow_started", 1)
    api.parts.guards = GuardWatch(
        api.parts._complete_history, api.parts._complete, api.parts.desk, labels=api.parts.label_counts
    )
    api.parts.guards.look()
    assert list(api.parts.findings())
    getattr(api, reader).why = f"{reader} cannot be read: no permission"
    api.parts.guards.look()
    assert not list(api.parts.findings())


def test_models_have_their_role(api: Api) -> None:
    api.propose()
    api.event("shadow_started", 1)
    listed = {model["version"]: model["now"] for model in api.client.get("/v1/models").json()["models"]}
    assert listed["1"] == [{"role": "champion", "rollout_id": "r1"}]
    assert listed["2"] == [{"role": "shadow", "rollout_id": "r2"}]
    assert listed["3"] == []


def test_the_alias_waits_until_the_topic_has_been_read_to_its_end(api: Api) -> None:
    moved: list[tuple[str, str]] = []
    api.parts.mirror._point = lambda alias, model: moved.append((alias, model.version))
    api.reader.why = "rollouts have not been read to their end yet"
    assert api.parts.mirror.look()
    assert moved == []
    api.reader.why = None
    assert api.parts.mirror.look()
    assert moved == [("champion", "1")]


def test_before_the_topic_has_been_read_requests_are_unanswered(api: Api) -> None:
    api.reader.why = "rollouts have not been read to their end yet"
    for path in ("/v1/rollouts", "/v1/rollouts/r1", "/v1/rollouts/r1/verdict", "/v1/models"):
        answer = api.client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (503, "rollouts_unknown")


def same_names(example: Any, answer: Any) -> bool:
    """Whether objects have the same field names at every depth; of lists, the first items are compared.

    Dicts by partition number, and fields that only some events have, are not compared.
    """
    if isinstance(example, dict) and isinstance(answer, dict) and not all(name.isdigit() for name in example):
        of_some_events = {"challenger", "share_bp"}
        return not (set(example) ^ set(answer)) - of_some_events and all(
            same_names(example[name], answer[name]) for name in example if name in answer
        )
    if isinstance(example, list) and isinstance(answer, list):
        return not (example and answer) or same_names(example[0], answer[0])
    return not {dict, list} & {type(example), type(answer)} or type(example) is type(answer)


def test_examples_have_the_fields_of_answers(api: Api) -> None:
    receipt = api.propose().json()
    api.event("shadow_started", 1)
    for path, example in (
        ("/v1/rollouts", examples.ROLLOUTS),
        ("/v1/rollouts/r2", examples.ROLLOUT | {"guards": None}),
        ("/v1/models", examples.MODELS),
    ):
        assert same_names(
            example, api.client.get(path).json() | ({"guards": None} if "r2" in path else {})
        ), path
    assert same_names(examples.RECEIPT, receipt)


def test_every_operation_has_a_description_and_an_example(api: Api) -> None:
    for path, operations in api.app.openapi()["paths"].items():
        for method, operation in operations.items():
            assert operation["description"], path
            good = operation["responses"]["201" if method == "post" else "200"]
            assert good["content"]["application/json"].get("example"), (path, method)
            assert "409" in operation["responses"]
    types = api.app.openapi()["components"]["schemas"]["EventBody"]["properties"]["type"]["enum"]
    assert set(types) == {kind.value for kind in Type} - {"proposed", "breached"}


@pytest.mark.parametrize(
    ("path", "ids"),
    [
        ("c-1/t-1", ("c-1", "t-1")),
        ("c%2F1%3D/t-1", ("c/1=", "t-1")),
        ("c-1/a%2Fb%2F", ("c-1", "a/b/")),
        ("c%252F/t%3F", ("c%2F", "t?")),
        ("%2F/%2F", ("/", "/")),
        (f"c-1/{'t' * 65}", 422),
        (f"{'%2F' * 65}/t", 422),
        ("c-1/", 422),
        ("a/b/c", 404),
    ],
)
def test_ids_with_slashes_can_be_asked_for(
    path: str, ids: tuple[str, str] | int, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def explain(_s: Any, _h: Any, _g: Any, card_id: str, transaction_id: str, _since: int) -> Any:
        asked.append((card_id, transaction_id))
        return {}

    monkeypatch.setattr(decisions, "explain", explain)
    answer = api.client.get(f"/v1/decisions/{path}?since=1")
    assert (answer.status_code, asked) == ((ids, []) if isinstance(ids, int) else (200, [ids]))

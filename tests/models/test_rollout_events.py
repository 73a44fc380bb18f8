"""Rollout events are written and read by their contract; records of other versions are refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
from harness.rollout_records import challenger, event, proposed

from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import FIELDS, Demands, Event, Type, installation
from models.rollouts.reading import read
from streaming_job.contracts import ContractError

pytestmark = pytest.mark.unit

MODEL = ModelRef("card-fraud", "3", "models:/card-fraud/3", "ab" * 32, ("amount:1", "count_1m:2"))
POLICY = Policy(0.75, 6, "review", 3, None, "review", "ignore", 4, 600)
PROPOSED = proposed(
    "r", challenger(MODEL, policy=POLICY), champion=MODEL, guards={"alpha": 0.01}, demands=Demands(True, 500)
)
EVENTS = [PROPOSED, *(event(kind, "r", 2) for kind in Type if kind is not Type.PROPOSED)]


@pytest.mark.parametrize("made", EVENTS, ids=lambda result: result.type)
def test_an_event_is_read_back_unchanged(made: Event) -> None:
    assert read(made.to_json()) == made


def test_an_installation_is_read_back_unchanged() -> None:
    proposal, promotion = installation(MODEL, POLICY, "r" * 64, "me", 5)
    for result in (proposal, promotion):
        assert read(result.to_json()) == result
    assert (proposal.seq, proposal.any_champion, promotion.seq, promotion.expected_seq) == (1, True, 2, 1)
    assert promotion.challenger == proposal.challengers[0].name


def test_unknown_fields_are_tolerated() -> None:
    record = json.loads(PROPOSED.to_json())
    record["more"] = 1
    for part in record["challengers"]:
        part["model"]["more"] = part["policy"]["more"] = 2
    assert read(json.dumps(record).encode()) == PROPOSED


@pytest.mark.parametrize("version", [1, 3, "2", True, None])
def test_a_record_of_another_schema_version_is_refused(version: object) -> None:
    with pytest.raises(ContractError, match=r"not a model-rollout\.v2: .*schema_version"):
        read(changed(PROPOSED, "schema_version", version))


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"\xff", b"[]", b"1", b"{}", b"[" * 100_000],
)
def test_an_event_that_breaks_the_contract_is_refused(value: bytes) -> None:
    with pytest.raises(ContractError):
        read(value)


def changed(made: Event, path: str, to: Any) -> bytes:
    """The event's record with one field changed, or removed if `to` is `...`."""
    record = part = json.loads(made.to_json())
    *way, last = path.split(".")
    for name in way:
        part = part[int(name)] if name.isdigit() else part[name]
    if to is ...:
        del part[last]
    else:
        part[last] = to
    return json.dumps(record).encode()


@pytest.mark.parametrize("made", EVENTS, ids=lambda result: result.type)
def test_every_field_of_its_type_is_required(made: Event) -> None:
    optional = {"any_champion", "demands"}
    for name in json.loads(made.to_json()):
        if name not in optional:
            with pytest.raises(ContractError):
                read(changed(made, name, ...))
    assert set(FIELDS[made.type]) <= set(json.loads(made.to_json()))


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("type", "demoted"), ("seq", 0), ("seq", True), ("expected_seq", 1), ("idempotency_key", ""),
        ("idempotency_key", "k" * 65), ("rollout_id", ""), ("rollout_id", "x\ud800"), ("actor", ""),
        ("created_at", -1), ("challengers", []), ("challengers.0.role", "king"), ("challengers.0.name", ""),
        ("challengers.0.share_bp", 10_001), ("challengers.0.model.digest", "short"),
        ("challengers.0.model.features", ["amount:1"] * 2), ("challengers.0.model.features", [":1"]),
        ("challengers.0.policy.threshold", 1.5), ("challengers.0.policy.max_count_1m", 0),
        ("challengers.0.policy.max_count_5m", None), ("challengers.0.policy.max_count_1h", 10**30),
        ("challengers.0.policy.blocked", "score"), ("challengers.0.policy.escalate_after", 0),
        ("challengers.0.policy.cooldown_s", -1), ("challengers.0.policy.cooldown_s", 10**9),
        ("guards", []), ("line", ""), ("champion", {}), ("guards", {"alpha": float("nan")}),
        ("guards", {"rules": [{"against": {"counts": [float("inf")]}}]}),
    ],
)  # fmt: skip
def test_impossible_fields_are_refused(path: str, to: object) -> None:
    with pytest.raises(ContractError):
        read(changed(PROPOSED, path, to))


@pytest.mark.parametrize("share", [0, 10_001, 0.5])
def test_share_of_a_canary_is_in_basis_points(share: float) -> None:
    with pytest.raises(ContractError):
        read(changed(event(Type.CANARY_SET, "r", 3), "share_bp", share))


def test_challengers_have_distinct_names_and_at_most_one_canary() -> None:
    for names, roles in ((("a", "a"), ("shadow", "shadow")), (("a", "b"), ("canary", "canary"))):
        both = [challenger(MODEL, name, role) for name, role in zip(names, roles, strict=True)]
        with pytest.raises(ContractError):
            read(proposed("r", *both).to_json())
    five = [challenger(MODEL, str(number), "shadow") for number in range(5)]
    assert read(proposed("r", *five[:4]).to_json()).challengers == tuple(five[:4])
    with pytest.raises(ContractError):
        proposed("r", *five).to_json()


def test_an_event_that_breaks_the_contract_is_not_written() -> None:
    for wrong in ({"rollout_id": ""}, {"actor": "x\ud800"}, {"seq": 0}, {"seq": 2**70}):
        with pytest.raises(ContractError):
            replace(PROPOSED, **wrong).to_json()  # type: ignore[arg-type]


def test_the_content_digest_covers_all_fields_that_a_repetition_repeats() -> None:
    others: dict[str, Any] = {
        "type": Type.SHADOW_STARTED, "rollout_id": "x", "seq": 9, "idempotency_key": "x", "actor": "x",
        "reason": "x", "approved_by": "x", "champion": None, "any_champion": True, "challengers": (),
        "guards": {}, "demands": Demands(True), "line": "x", "challenger": "x", "share_bp": 1, "guard": "x",
        "verdict": {"x": 1}, "from_the_beginning": True,
    }  # fmt: skip
    for made in EVENTS:
        assert replace(made, created_at=7).content == made.content
        for name in made.fields().keys() - {"schema_version", "expected_seq", "created_at"}:
            value = Type.PAUSED if made.type is others[name] else others[name]
            assert replace(made, **{name: value}).content != made.content, name

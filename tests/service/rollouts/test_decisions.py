"""The plan (champion, challengers, canary's share) that the sidecar finds at an arrival equals the job's."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException
from harness import framed_records
from harness.memory_rollouts import ADA, BOB, START, KnownModels, MemoryRollouts, proposal
from trial_progress import COUNTS, trial_progress

from models.rollouts.events import Type
from service.rollouts.decisions import _Search, _unalerted, by_plan, partitions_of, plan_at
from service.rollouts.desk import Desk
from service.rollouts.errors import UnansweredError
from service.rollouts.reading import Job
from service.rollouts.requests import Step
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics
from streaming_job.decide.rollout_history import EventVerdict, RolloutHistory, RolloutRecord
from streaming_job.decode.framed import RecordSchemas
from streaming_job.log import topic_reader
from streaming_job.log.partitioner import KeyGroups, Layout, Partitioner

pytestmark = pytest.mark.unit

MINUTE = 60_000


@pytest.fixture
def log() -> MemoryRollouts:
    """r1 decides; r2 is in shadow, a canary, paused, resumed, promoted and withdrawn, one event a minute."""
    rollouts = MemoryRollouts()
    groups = {0: trial_progress("r2", {"next": COUNTS}, written_at=START)}
    desk = Desk(
        ServiceSettings(bootstrap_servers="none"),
        clock=lambda: START / 1000,
        job=lambda: Job(groups),
        registry=KnownModels(),
        rollouts=rollouts,
    )
    desk.propose(proposal(), ADA)
    for kind in ("shadow_started", "canary_set", "paused", "resumed", "promoted", "withdrawn"):
        desk.take(Step("r2", Type(kind), "because", kind, share_bp=5_000 if kind == "canary_set" else 0), BOB)
    return rollouts


def test_the_plan_of_each_minute_equals_the_jobs(log: MemoryRollouts) -> None:
    history = RolloutHistory(computed=["amount:1"])
    records = [RolloutRecord(record.timestamp, record.offset, record.value) for record in log.records]
    assert not history.fold(records, Topics(), lambda *_: EventVerdict())
    arrivals = np.arange(START - MINUTE, START + 12 * MINUTE, MINUTE // 2, dtype=np.int64)
    plans, numbers = history.in_force(arrivals)
    for arrival, number in zip(arrivals.tolist(), numbers.tolist(), strict=True):
        assert plan_at(log.history(), arrival) == plans[number], arrival


def test_the_canary_decides_for_members_and_the_champion_for_others(log: MemoryRollouts) -> None:
    canary = plan_at(log.history(), START + 4 * MINUTE)
    assert canary is not None
    assert canary.canary == "next"
    sides = {card: by_plan(canary, card) for card in (f"c{number}" for number in range(200))}
    for decision in sides.values():
        assert decision["membership"]["is_member"] == (decision["membership"]["bucket"] < 5_000)
        wanted = ("canary", "2") if decision["membership"]["is_member"] else ("champion", "1")
        assert (decision["decided_by"]["role"], decision["decided_by"]["model"]["version"]) == wanted
        assert [scored["model"]["version"] for scored in decision["scored_by"]] == ["1", "2"]
    assert 60 < sum(by_card["membership"]["is_member"] for by_card in sides.values()) < 140
    assert by_plan(None, "c1")["decided_by"] is None


@dataclass(frozen=True)
class Sent:
    """A message of the card c-1, which arrived at a time, ms."""

    content: bytes
    arrival: int = 5

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def key(self) -> bytes:
        return b"c-1"

    def value(self) -> bytes:
        return self.content

    def timestamp(self) -> tuple[int, int]:
        return 1, self.arrival


FIELDS: dict[str, Any] = {
    "transaction_id": "t-1", "card_id": "c-1", "merchant_id": "m", "amount": 1.5, "currency": "EUR",
    "country": "FR", "event_time": START,
}  # fmt: skip


def test_a_card_is_looked_up_by_the_partitioner_of_the_running_job() -> None:
    settings = ServiceSettings(bootstrap_servers="none", partitioner=Partitioner.MURMUR2)

    def found(card: str, groups: dict[int, Any], partitions: int = 4) -> list[int]:
        return partitions_of(card, partitions, settings, groups)

    def partition(partitioner: Partitioner, card: str, partitions: int = 4) -> int:
        return KeyGroups(partitioner, partitions, 1).partition_of(card)

    layout = Layout(settings.topics.transactions, Partitioner.CRC32, 4).to_json()
    for card in (f"c{number}" for number in range(50)):
        by_setting, by_job = partition(Partitioner.MURMUR2, card), partition(Partitioner.CRC32, card)
        assert found(card, {}) == [by_setting]
        assert found(card, {0: {"layout": layout}}) == [by_job]
        assert found(card, {0: {"layout": layout | {"topic": "another"}}}) == [by_setting]
        # producers use the topic's new partitions before the job does
        both = {by_job, partition(Partitioner.CRC32, card, 6)}
        assert found(card, {0: {"layout": layout}}, partitions=6) == sorted(both)


LIMITS = {"allowed_lateness_ms": 1_000, "allowed_skew_ms": 100, "refuse_card_numbers": True}


def outcome_of(
    log: MemoryRollouts, *sent: dict[str, Any], settings: dict[str, Any] = LIMITS
) -> dict[str, Any]:
    """The explanation of transactions of one id without an alert, which the job has read."""
    nothing: Any = None
    search = _Search(nothing, "c-1", "t-1", 0, lambda: False, lambda: None)
    read = {"topic": "transactions", "partition": 0, "end_offset": 8}
    progress = trial_progress("r2", {}, written_at=START, partitions=[read], settings=settings)
    records: Any = [Sent(json.dumps(FIELDS | fields).encode(), START) for fields in sent]
    service = ServiceSettings(bootstrap_servers="none")
    return _unalerted(service, log.history(), {0: progress}, search, records, [])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"amount": -1}, "negative_amount"),
        ({"currency": "eur"}, "invalid_value"),
        ({"event_time": START - 1_001}, "too_late"),
        ({"event_time": START + 101}, "future_event_time"),
        ({"merchant_id": "4111 1111 1111 1111"}, "card_number"),
    ],
)
def test_a_dead_letter_is_not_called_decided(log: MemoryRollouts, wrong: dict[str, Any], reason: str) -> None:
    explained = outcome_of(log, wrong)
    assert (explained["outcome"], explained["refused"]["reason"]) == ("dead_letter", reason)
    assert (explained["decided_by"], explained["scored_by"]) == (None, [])
    corrected = outcome_of(log, wrong, {})
    assert (corrected["outcome"], corrected["refused"]) == ("no_alert", None)
    assert corrected["decided_by"]["role"] == "champion"


def test_the_limits_are_those_of_the_job(log: MemoryRollouts) -> None:
    late, card_number = {"event_time": START - 2_000}, {"merchant_id": "4111 1111 1111 1111"}
    lax = {"allowed_lateness_ms": 2_000, "allowed_skew_ms": 100, "refuse_card_numbers": False}
    for fields in (late, card_number):
        assert outcome_of(log, fields)["outcome"] == "dead_letter"
        for settings in (lax, {}):
            assert outcome_of(log, fields, settings=settings)["outcome"] == "no_alert"


def test_a_framed_transaction_is_found_as_its_json_would_be() -> None:
    schemas, schema = RecordSchemas(), framed_records.avro_schema()
    schemas.add(5, framed_records.event(1, schema))
    framed = framed_records.avro(1, schema, FIELDS)

    def is_found(message: Any, known: RecordSchemas | None = schemas) -> bool:
        nothing: Any = None
        return _Search(nothing, "c-1", "t-1", 0, lambda: False, lambda: known)._is_wanted(message)

    assert is_found(Sent(json.dumps(FIELDS).encode()))
    assert is_found(Sent(framed))
    # before its schema it is a dead letter; without a topic of schemas all such are
    assert not is_found(Sent(framed, arrival=4))
    assert not is_found(Sent(framed), known=None)
    assert not is_found(Sent(framed[:-3]))
    assert not is_found(Sent(framed_records.avro(1, schema, {**FIELDS, "transaction_id": "t-2"})))


@pytest.mark.parametrize("transaction_id", ["café", "a/b", 'a"b', "t-1"])
def test_a_transaction_is_found_however_its_serialiser_escapes_characters(transaction_id: str) -> None:
    nothing: Any = None
    search = _Search(nothing, "c-1", transaction_id, 0, lambda: False, lambda: None)
    fields = {"transaction_id": transaction_id}
    plain = json.dumps(fields, ensure_ascii=False)
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in transaction_id)
    for text in (plain, json.dumps(fields), plain.replace("/", "\\/"), f'{{"transaction_id": "{escaped}"}}'):
        wanted: Any = Sent(text.encode())
        other: Any = Sent(text.encode().replace(b'"}', b'x"}'))
        assert search._is_wanted(wanted)
        assert not search._is_wanted(other)


def test_without_a_topic_of_alerts_it_is_not_known_whether_there_are_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_gone(*_: object) -> list[int]:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    nothing: Any = None
    monkeypatch.setattr(topic_reader, "partitions", is_gone)
    search = _Search(nothing, "c-1", "t-1", 0, lambda: False, lambda: None)
    with pytest.raises(UnansweredError, match="topic fraud-alerts does not exist"):
        search.values("fraud-alerts")

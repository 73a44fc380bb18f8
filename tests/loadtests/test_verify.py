"""The audit finds what is planted: a missing, a repeated, a foreign, a changed record, a wrong account."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping

import pytest
from oracle_world import START, AmountModel, World

from loadtests.comparison import Findings, Found
from loadtests.oracle import Kind, Record
from loadtests.progress_audit import ProgressAudit
from loadtests.verify import Verdict, VerifyError, verify
from streaming_job.settings import JobSettings

pytestmark = pytest.mark.unit

SETTINGS = JobSettings(
    bootstrap_servers="none", mlflow_tracking_uri="none", checkpoint="none", work_dir="none", job_id="job"
)
HEADERS = (("batch_id", b"0"), ("query_id", b"q"))


class MemoryLog:
    """Topics as lists."""

    def __init__(self, topics: dict[str, list[Record]], group: Mapping[tuple[str, int], int]) -> None:
        self.topics, self.group = topics, dict(group)

    def committed(self, group: str, topics: tuple[str, ...]) -> dict[tuple[str, int], int]:
        assert group == "job"
        return self.group

    def read(self, topic: str, ends: Mapping[int, int] | None = None) -> Iterator[Record]:
        return (r for r in self.topics[topic] if ends is None or r.offset < ends.get(r.partition, 0))


def job_output(world: World) -> MemoryLog:
    """The log after a job without faults has read everything in one batch."""
    alerts, letters = [], []
    for record, outcome in zip(world.transactions, world.outcomes(), strict=True):
        if outcome.kind == Kind.ALERT:
            value = json.dumps(outcome.alert).encode()
            key = outcome.alert["card_id"].encode()
            alerts.append(Record("fraud-alerts", 0, len(alerts), START, key, value, HEADERS))
        elif outcome.kind == Kind.DEAD_LETTER:
            letter = {
                "schema_version": 1,
                "reason": outcome.reason.value,
                "detail": "for a person",
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "arrival_time": record.timestamp,
                "key_base64": base64.b64encode(record.key).decode(),
                "value_base64": base64.b64encode(record.value).decode(),
            }
            value = json.dumps(letter).encode()
            letters.append(Record("dead-letters", 0, len(letters), START, record.key, value, HEADERS))
    topics = {
        "transactions": world.transactions,
        "bank.public.card_profiles": world.profiles,
        "model-rollouts": world.rollouts,
        "fraud-alerts": alerts,
        "dead-letters": letters,
        "job-progress": [progress(world, alerts, letters)],
    }
    group = {
        ("transactions", 0): len(world.transactions),
        ("bank.public.card_profiles", 0): len(world.profiles),
        ("model-rollouts", 0): len(world.rollouts),
    }
    return MemoryLog(topics, group)


@pytest.mark.parametrize(("alerts", "problems"), [(5, 0), (4, 1), (6, 1)])
def test_totals_have_to_go_on_where_the_batch_before_ended(alerts: int, problems: int) -> None:
    audit = ProgressAudit({})
    for batch, (count, total) in enumerate(((2, 2), (0, 2), (0, alerts - 3), (0, alerts - 3))):
        told = {
            "query_id": "q", "batch_id": batch, "counts": {"alerts": 0, "dead_letters": 0, "late": count},
            "partitions": [], "alerts_digest": hashlib.sha256().hexdigest(),
            "totals": {"since": 1, "counts": {"alerts": 0, "late": total}},
        }  # fmt: skip
        audit.add_progress(Record("job-progress", 0, batch, START, b"job", json.dumps(told).encode()))
    audit.check()
    assert len(audit.problems) == problems


def progress(world: World, alerts: list[Record], letters: list[Record]) -> Record:
    kinds = [outcome.kind for outcome in world.outcomes()]
    value = {
        "query_id": "q",
        "batch_id": 0,
        "counts": {
            "transactions": kinds.count(Kind.PASSED) + kinds.count(Kind.ALERT),
            "duplicates": kinds.count(Kind.DUPLICATE),
            "alerts": len(alerts),
            "dead_letters": len(letters),
            "late_table_changes": 0,
        },
        "alerts_digest": hashlib.sha256(b"".join(alert.value for alert in alerts)).hexdigest(),
        "partitions": [
            {
                "topic": "transactions",
                "partition": 0,
                "start_offset": 0,
                "end_offset": len(world.transactions),
            }
        ],
    }
    return Record("job-progress", 0, 0, START, b"job", json.dumps(value).encode())


@pytest.fixture
def log() -> MemoryLog:
    """Three alerts, a duplicate, two dead letters, one transaction that passes."""
    world = World(threshold=0.5)
    world.profile("r", arrival=0)
    for amount in (900.0, 10.0, 600.0, 700.0):
        world.tx(0, amount)
    world.tx(0, 10.0, transaction_id="t1")
    world.raw(b"{")
    world.tx(0, -1.0)
    return job_output(world)


def audit(log: MemoryLog) -> Verdict:
    return verify(log, SETTINGS, lambda _: AmountModel())


def changed(record: Record, **fields: object) -> Record:
    return record._replace(value=json.dumps({**json.loads(record.value), **fields}).encode())


def counts(verdict: Verdict) -> tuple[int, int, int, int]:
    found = verdict.findings
    return found.missing, found.duplicated, found.unexpected, found.different


def test_job_without_faults_is_clean(log):
    verdict = audit(log)
    assert counts(verdict) == (0, 0, 0, 0)
    assert verdict.problems == []
    assert verdict.is_clean
    report = verdict.report()
    assert {name: report[name] for name in ("events", "alerts", "dead_letters", "passed")} == {
        "events": 7, "alerts": 3, "dead_letters": 2, "passed": 1
    }  # fmt: skip
    assert report["repeated_transactions"] == 1


def test_missing_alert_is_found(log):
    del log.topics["fraud-alerts"][1]
    verdict = audit(log)
    assert counts(verdict) == (1, 0, 0, 0)
    assert "transactions[0]@2" in verdict.findings.examples[0]
    assert any("another digest" in problem for problem in verdict.problems)
    assert any("progress tells of 3 alerts, 2 found" in problem for problem in verdict.problems)


def test_repeated_alert_is_found(log):
    log.topics["fraud-alerts"].append(log.topics["fraud-alerts"][0])
    assert counts(audit(log)) == (0, 1, 0, 0)


def test_foreign_alert_is_found(log):
    alerts = log.topics["fraud-alerts"]
    source = json.loads(alerts[0].value)["source"]
    alerts.append(changed(alerts[0], source={**source, "offset": 1}))
    assert counts(audit(log)) == (0, 0, 1, 0)


def test_second_alert_of_a_transaction_is_found_under_another_id(log):
    alerts = log.topics["fraud-alerts"]
    alerts.append(changed(alerts[0], alert_id="00000000-0000-0000-0000-000000000000"))
    assert counts(audit(log)) == (0, 1, 0, 0)


def test_same_transaction_sent_again_may_have_an_alert_of_the_same_id(log):
    first, *_ = log.topics["fraud-alerts"]
    findings = Findings()
    found = Found(findings)
    found.add_alert(first)
    found.add_alert(changed(first, source={**json.loads(first.value)["source"], "offset": 99}))
    assert findings == Findings()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("score", 0.9 + 1e-11),
        ("threshold", 0.4),
        ("decision", "decline"),
        ("rules", ["score", "velocity_5m"]),
        ("suspicious_count", {"day": 2, "total": 1}),
        ("late", True),
        ("late", 0),
        ("amount", 900.0001),
        ("profile", None),
        ("reasons", []),
    ],
)
def test_changed_alert_is_one_missing_and_one_unexpected(log, field, value):
    alerts = log.topics["fraud-alerts"]
    alerts[0] = changed(alerts[0], **{field: value})
    verdict = audit(log)
    assert counts(verdict) == (1, 0, 1, 1)
    assert field in verdict.findings.examples[0]


def test_features_may_differ_in_the_last_bits_only(log):
    alerts = log.topics["fraud-alerts"]
    features = json.loads(alerts[0].value)["features"]
    alerts[0] = changed(alerts[0], features={**features, "amount": 900.0 * (1 + 1e-12)})
    assert counts(audit(log)) == (0, 0, 0, 0)
    alerts[0] = changed(alerts[0], features={**features, "amount": 900.0 * (1 + 1e-8)})
    assert counts(audit(log)) == (1, 0, 1, 1)


def test_unknown_fields_of_an_alert_are_tolerated(log):
    alerts = log.topics["fraud-alerts"]
    alerts[0] = changed(alerts[0], colour="red")
    assert counts(audit(log)) == (0, 0, 0, 0)


def test_alert_under_another_key_differs(log):
    alerts = log.topics["fraud-alerts"]
    alerts[0] = alerts[0]._replace(key=b"other")
    assert counts(audit(log)) == (1, 0, 1, 1)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (lambda letters: letters.pop(), (1, 0, 0, 0)),
        (lambda letters: letters.append(letters[0]), (0, 1, 0, 0)),
        (lambda letters: letters.append(changed(letters[0], offset=1)), (0, 0, 1, 0)),
        (lambda letters: letters.insert(0, changed(letters.pop(0), reason="wrong_type")), (1, 0, 1, 1)),
        (lambda letters: letters.insert(0, changed(letters.pop(0), value_base64="YQ==")), (1, 0, 1, 1)),
        (lambda letters: letters.append(letters[0]._replace(value=b"no json")), (0, 0, 1, 0)),
    ],
)
def test_faults_of_dead_letters_are_found(
    log: MemoryLog, plant: Callable[[list[Record]], object], expected: tuple[int, int, int, int]
):
    plant(log.topics["dead-letters"])
    assert counts(audit(log)) == expected


def test_what_the_job_has_not_committed_is_not_expected(log):
    log.group["transactions", 0] = 2  # the last alerts are of later batches
    verdict = audit(log)
    assert counts(verdict) == (0, 0, 0, 0)
    assert verdict.events == 2


def test_batch_written_twice_is_told(log):
    log.topics["job-progress"] *= 2
    assert any("written twice" in problem for problem in audit(log).problems)


def test_gap_between_batches_is_told(log):
    (record,) = log.topics["job-progress"]
    empty = hashlib.sha256().hexdigest()
    none = {"transactions": 0, "duplicates": 0, "alerts": 0, "dead_letters": 0, "late_table_changes": 0}
    part = {"topic": "transactions", "partition": 0, "start_offset": 7, "end_offset": 7}
    log.topics["job-progress"].append(
        changed(
            record, batch_id=2, counts=none, alerts_digest=empty, partitions=[{**part, "start_offset": 6}]
        )
    )
    problems = audit(log).problems
    assert any("missing between 0 and 2" in problem for problem in problems)
    assert any("starts at 6" in problem for problem in problems)


def test_wrong_totals_are_told(log):
    (record,) = log.topics["job-progress"]
    account = json.loads(record.value)["counts"]
    log.topics["job-progress"] = [changed(record, counts={**account, "duplicates": 0})]
    assert audit(log).problems == ["progress adds up to 0 duplicates, the oracle finds 1"]


def test_job_that_committed_nothing_cannot_be_audited(log):
    log.group.clear()
    with pytest.raises(VerifyError, match="committed no offsets"):
        audit(log)

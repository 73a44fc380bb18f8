"""One alert is recomputed byte for byte from its card's log; a changed field is named."""

import json
from collections.abc import Callable

import pytest
from audited_log import HEADERS, SETTINGS, MemoryLog, changed
from harness.framed_records import avro, avro_schema, event
from harness.job_world import World, load, subset_ref
from harness.log_world import HOUR, MINUTE

from feature_store.release import RELEASE
from loadtests.audit.card_log import AlertError
from loadtests.audit.one_alert import Rebuilt, rebuild
from loadtests.oracle import Record
from streaming_job.log.losses import FIELD
from streaming_job.progress.record import ROLLOUT_TOPICS

pytestmark = pytest.mark.unit


def written(world: World) -> MemoryLog:
    """The log, with the alerts that the job's code writes for all cards."""
    alerts = [alert for outcome in world.run() for alert in outcome.records["fraud_alerts"]]
    topics = {
        "transactions": world.transactions,
        "bank.public.card_profiles": world.profiles,
        "model-rollouts": world.rollouts,
        "record-schemas": world.schemas,
        "fraud-alerts": [
            Record("fraud-alerts", 0, number, 0, alert.record_key, alert.value, HEADERS)
            for number, alert in enumerate(alerts)
        ],
        "suppressed-alerts": [],
        "dead-letters": [],
    }
    row = {
        "query_id": "q", "key_group": 0, ROLLOUT_TOPICS: ["model-rollouts"], FIELD: world.losses.to_json()
    }  # fmt: skip
    topics["job-progress"] = [Record("job-progress", 0, 0, 0, b"job", json.dumps(row).encode(), HEADERS)]
    return MemoryLog(topics, {})


@pytest.fixture(scope="module")
def world() -> World:
    """Two hours of four cards; profiles and the champion change in between. Every third record is framed."""
    world = World()
    for card in "abcd":
        world.profile("r", -HOUR, card)
    world.rollout("r2", 50 * MINUTE, threshold=0.3, version="2")
    for number in range(40):
        card = "abcd"[number % 4]
        world.tx(3 * number * MINUTE, float(10 + 97 * number % 900), card_id=card)
        if number % 25 == 7:
            world.profile("u", 3 * number * MINUTE, card, risk_tier=number % 4)
    world.raw_schema(event(1, avro_schema()), -HOUR)
    for number, record in enumerate(world.transactions[::3]):
        value = avro(1, avro_schema(), json.loads(record.value or b""))
        world.transactions[3 * number] = record._replace(value=value)
    world.raw_tx(b"{", 121 * MINUTE)
    return world


@pytest.fixture
def log(world: World) -> MemoryLog:
    return written(world)


def rebuilt(log: MemoryLog, alert: Record) -> Rebuilt:
    return rebuild(log, SETTINGS, load, json.loads(alert.value or b"")["alert_id"])


def test_every_alert_is_recomputed_byte_for_byte(log: MemoryLog) -> None:
    alerts = log.topics["fraud-alerts"]
    assert len(alerts) > 20
    for alert in alerts:
        result = rebuilt(log, alert)
        assert result.is_clean, result.report()
        content = json.loads(alert.value or b"")
        rests_on = result.rests_on
        assert rests_on["newest_offsets"][-1] == content["source"]["offset"]
        assert rests_on["plan"]["rollout_id"] == content["rollout_id"]
        assert rests_on["features"] == content["features"]
    assert {json.loads(alert.value or b"")["rollout_id"] for alert in alerts} == {"r1", "r2"}


def test_an_alert_of_another_release_that_decides_alike_is_rebuilt_byte_for_byte(log: MemoryLog) -> None:
    alerts = log.topics["fraud-alerts"]
    value = (alerts[3].value or b"").replace(RELEASE.encode(), b"0.0.9+00000000")
    alerts[3] = alerts[3]._replace(value=value)
    result = rebuilt(log, alerts[3])
    assert result.is_clean, result.report()
    assert result.rests_on["release"] == "0.0.9+00000000"
    assert result.rests_on["rebuilt_by_release"] == RELEASE


@pytest.mark.parametrize(
    ("release", "lacks", "differences"),
    [
        ("0.0.9+00000000", "hour_of_day", []),  # computed only since the upgrade; the model does not use it
        ("0.0.9+00000000", "amount", ["features"]),  # the model uses it
        (RELEASE, "hour_of_day", ["features"]),
    ],
)
def test_an_alert_may_lack_only_features_that_its_release_did_not_compute(
    release: str, lacks: str, differences: list[str]
) -> None:
    world = World()
    world.rollout("r2", -MINUTE, model=subset_ref(), threshold=0.01)
    world.tx(0, 900.0)
    log = written(world)
    (alert,) = log.topics["fraud-alerts"]
    features = json.loads(alert.value or b"")["features"]
    del features[lacks]
    log.topics["fraud-alerts"] = [changed(alert, release=release, features=features)]
    assert rebuilt(log, log.topics["fraud-alerts"][0]).oracle_differences == differences


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda alert: {"score": alert["score"] + 2e-9}, "score"),
        (lambda told: {"decision": "another"}, "decision"),
        (lambda alert: {"features": {**alert["features"], "amount": 1.0}}, "features"),
        (lambda told: {"suspicious_count": {"day": 9, "total": 9}}, "suspicious_count"),
    ],
)
def test_the_changed_field_of_an_alert_is_named(
    log: MemoryLog, change: Callable[[dict], dict], field: str
) -> None:
    alerts = log.topics["fraud-alerts"]
    alerts[5] = changed(alerts[5], **change(json.loads(alerts[5].value or b"")))
    result = rebuilt(log, alerts[5])
    assert not result.is_clean
    assert [text.partition(":")[0] for text in result.differences] == [field]
    assert result.oracle_differences == [field]


def test_same_content_in_other_bytes_is_not_equal(log: MemoryLog) -> None:
    alerts = log.topics["fraud-alerts"]
    content = json.loads(alerts[5].value or b"")
    alerts[5] = alerts[5]._replace(value=json.dumps(content, indent=1).encode())
    result = rebuilt(log, alerts[5])
    assert not result.is_equal
    assert result.differences == ["the order or the spelling of the fields"]


def test_an_alert_without_cause_is_not_recomputed(log: MemoryLog) -> None:
    alerts = log.topics["fraud-alerts"]
    sources = {json.loads(alert.value or b"")["source"]["offset"] for alert in alerts}
    other = next(
        r for r in log.topics["transactions"] if r.offset not in sources and b'"d"' in (r.value or b"")
    )
    content = json.loads(alerts[-1].value or b"")
    source = {**content["source"], "offset": other.offset}
    alerts.append(changed(alerts[-1], alert_id="invented", card_id="d", source=source))
    result = rebuild(log, SETTINGS, load, "invented")
    assert result.oracle_differences == ["everything: it finds no alert"]
    assert not result.is_equal


def test_a_duplicated_alert_is_not_clean(log: MemoryLog) -> None:
    alerts = log.topics["fraud-alerts"]
    alerts.append(alerts[3]._replace(offset=len(alerts)))
    result = rebuilt(log, alerts[3])
    assert result.is_equal
    assert len(result.places) == 2
    assert not result.is_clean


def test_an_unknown_alert_and_deleted_transactions_are_refused(log: MemoryLog) -> None:
    with pytest.raises(AlertError, match="there is no alert"):
        rebuild(log, SETTINGS, load, "nothing")
    alert = log.topics["fraud-alerts"][9]
    log.topics["transactions"] = log.topics["transactions"][1:]
    with pytest.raises(AlertError, match="begins at 1"):
        rebuilt(log, alert)


def test_an_alert_whose_profile_compaction_has_removed_is_recomputed() -> None:
    world = World()
    world.tx(0, 999.0, card_id="a")
    world.profile("u", HOUR, "a")
    world.compact(2 * HOUR)
    log = written(world)
    (alert,) = log.topics["fraud-alerts"]
    assert json.loads(alert.value or b"")["profile_unknown"]
    assert rebuilt(log, alert).is_equal
    log.topics["job-progress"] = [changed(log.topics["job-progress"][0], **{FIELD: {}})]
    assert not rebuilt(log, alert).is_equal


def test_without_the_progress_of_the_alerts_job_there_is_no_verdict(log: MemoryLog) -> None:
    (progress,) = log.topics["job-progress"]
    others = progress._replace(headers=(("query_id", b"other"), *HEADERS[1:]))
    for records in ([], [others]):
        log.topics["job-progress"] = records
        with pytest.raises(AlertError, match="it is unknown whose rollouts"):
            rebuilt(log, log.topics["fraud-alerts"][3])

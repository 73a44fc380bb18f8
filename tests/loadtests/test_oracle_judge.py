"""The oracle's outcomes of whole logs: decisions, duplicates, tables as of arrival, counts, bad records."""

import json
import uuid

import pytest
from harness.log_world import DAY, HOUR, MINUTE, START
from oracle_world import World

from loadtests.oracle import Kind, ProfileLog, Record, RolloutLog
from loadtests.oracle.partitions import murmur2, partition_of
from streaming_job.contracts import Contract, Reason, validate

pytestmark = pytest.mark.unit


def kinds(world: World) -> list[Kind]:
    return [outcome.kind for outcome in world.outcomes()]


def reason_of(value: bytes | None) -> Reason | None:
    world = World(threshold=1.0)
    world.raw_tx(value)
    return world.outcomes()[0].reason


def test_score_at_the_threshold_is_an_alert():
    world = World(threshold=0.5)
    world.tx(0, 499.99)
    world.tx(MINUTE, 500.0)
    passed, alert = world.outcomes()
    assert passed.kind == Kind.PASSED
    assert alert.kind == Kind.ALERT
    assert alert.alert["rules"] == ["score"]
    assert alert.alert["decision"] == "review"
    assert alert.alert["score"] == 0.5
    assert alert.alert["source"] == {"topic": "transactions", "partition": 0, "offset": 1}


def test_alert_keeps_its_contract_and_its_id_comes_from_card_and_transaction():
    world = World()
    world.profile("r", arrival=0)
    world.tx(0, 900.0)
    (alert,) = world.alerts()
    validate(Contract.ALERT, {**alert, "release": "0.1.0+0123abcd"})  # the oracle does not know it
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, "card-fraud/alert")
    name = f"c\x00t0\x00{START}\x009000000\x00m\x00FR\x00EUR"
    assert alert["alert_id"] == str(uuid.uuid5(namespace, name))


def test_reasons_name_the_features_that_raised_the_score():
    world = World()
    world.tx(0, 900.0)
    (alert,) = world.alerts()
    assert alert["reasons"] == [{"feature": "amount", "value": 900.0, "contribution": 900.0}]


def test_amounts_have_a_precision_of_a_ten_thousandth():
    world = World(threshold=0.0)
    world.tx(0, 0.00004)
    world.tx(0, 0.00006)
    assert world.feature("amount") == [0, 0.0001]


def test_velocity_counts_the_transaction_itself():
    world = World(max_count_5m=2)
    for _ in range(3):
        world.tx(0)
    assert kinds(world) == [Kind.PASSED, Kind.PASSED, Kind.ALERT]
    assert world.alerts()[0]["rules"] == ["velocity_5m"]


def test_duplicate_is_not_decided_and_not_counted():
    """t0 -- t0 again -- t1: the repetition does not count in t1's window."""
    world = World(threshold=0.0)
    world.tx(0, transaction_id="t0")
    world.tx(0, transaction_id="t0")
    world.tx(MINUTE, transaction_id="t1")
    assert kinds(world) == [Kind.ALERT, Kind.DUPLICATE, Kind.ALERT]
    assert world.feature("count_5m") == [1, 2]


def test_same_transaction_id_on_another_card_is_no_duplicate():
    world = World()
    world.tx(0, transaction_id="t0")
    world.tx(0, transaction_id="t0", card_id="d")
    assert kinds(world) == [Kind.PASSED, Kind.PASSED]


@pytest.mark.parametrize(
    "change",
    [
        {"amount": 11.0},
        {"currency": "JPY"},
        {"merchant_id": "n"},
        {"country": "DE"},
        {"event_time": START + 1},
    ],
)
def test_an_id_with_other_content_is_decided_and_has_its_own_alert(change):
    world = World(threshold=0.0)
    for _ in range(2):
        world.tx(0, transaction_id="t0")
        world.tx(0, **{"transaction_id": "t0", **change})
    assert kinds(world) == [Kind.ALERT, Kind.ALERT, Kind.DUPLICATE, Kind.DUPLICATE]
    first, second = world.alerts()
    assert first["alert_id"] != second["alert_id"]
    assert [first["conflicting_repetition"], second["conflicting_repetition"]] == [False, True]


def test_a_burst_with_false_dates_is_a_burst():
    world = World(max_count_5m=2)
    for number in range(4):
        world.tx(-DAY + number * HOUR, arrival=number)
    assert kinds(world) == [Kind.PASSED, Kind.PASSED, Kind.ALERT, Kind.ALERT]
    assert [alert["features"]["arrivals_5m"] for alert in world.alerts()] == [3, 4]
    assert [alert["features"]["count_5m"] for alert in world.alerts()] == [1, 1]


@pytest.mark.parametrize("status", ["blocked", "closed"])
def test_card_declines_when_its_row_is_gone(status):
    world = World()
    world.profile("r", arrival=0, status=status)
    world.profile("d", arrival=10)
    for second in (9, 10):
        world.tx(second)
    before, after = world.alerts()
    assert before["rules"] == after["rules"] == [f"{status}_card"]
    assert before["decision"] == after["decision"] == "decline"
    assert (before["profile"]["status"], after["profile"]) == (status, None)


def test_lateness_and_skew_are_inclusive():
    """arrival - 7 d <= event time <= arrival + 5 min."""
    world = World()
    world.tx(-7 * DAY, arrival=0)
    world.tx(-7 * DAY - 1, arrival=0)
    world.tx(5 * MINUTE, arrival=0)
    world.tx(5 * MINUTE + 1, arrival=0)
    assert [outcome.reason for outcome in world.outcomes()] == [
        None, Reason.TOO_LATE, None, Reason.FUTURE_EVENT_TIME
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("partitioner", "card", "partition"), [("murmur2", "foobar", 0), ("crc32", "foobar", 1)]
)
def test_a_transaction_outside_its_cards_partition_is_refused(partitioner, card, partition):
    """Of foobar, murmur2 without the sign bit is 0x50e47bbe, which is even; CRC32 is 0x9ef61f95, odd."""
    worlds = [World(partitions=2, partitioner=partitioner) for _ in range(2)]
    for at, world in enumerate(worlds):
        world.tx(0, card_id=card)
        world.tx(-7 * DAY - 1, arrival=0, card_id=card)
        world.tx(0, -1.0, card_id=card)
        world.transactions = [record._replace(partition=at) for record in world.transactions]
    right, wrong = worlds[partition], worlds[1 - partition]
    refused = [Reason.TOO_LATE, Reason.NEGATIVE_AMOUNT]
    assert [outcome.reason for outcome in right.outcomes()] == [None, *refused]
    assert [outcome.reason for outcome in wrong.outcomes()] == [Reason.WRONG_PARTITION, *refused]


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("abc", 479470107),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_murmur2_is_that_of_the_java_client(key, signed):
    """Vectors of org.apache.kafka.common.utils.UtilsTest."""
    assert murmur2(key.encode()) == signed % 2**32
    assert partition_of(key, 12, "murmur2") == (signed & 0x7FFFFFFF) % 12


def test_profile_as_of_arrival_however_late_the_event():
    """profile   active ------- blocked ------- active
    arrival  0            10              20
    tx             5              10, 19          20
    """
    world = World()
    world.profile("c", arrival=0)
    world.profile("u", arrival=10, status="blocked")
    world.profile("u", arrival=20, status="active")
    for arrival in (5, 10, 19, 20):
        world.tx(0, arrival=arrival)
    assert kinds(world) == [Kind.PASSED, Kind.ALERT, Kind.ALERT, Kind.PASSED]
    alert = world.alerts()[0]
    assert alert["rules"] == ["blocked_card"]
    assert alert["decision"] == "decline"
    assert alert["profile"] == {
        "status": "blocked", "partition": 0, "offset": 1, "arrival_time": START + 10, "age_ms": 0
    }  # fmt: skip


def test_the_arrival_of_a_snapshot_row_is_the_beginning():
    world = World()
    world.profile("r", arrival=HOUR, status="blocked")
    world.tx(0)
    assert kinds(world) == [Kind.ALERT]
    assert world.alerts()[0]["profile"]["arrival_time"] == 0


def test_rollout_as_of_arrival_and_the_first_one_before_any():
    world = World(threshold=0.9)
    world.rollouts.clear()
    world.rollout("r1", arrival=10, threshold=0.9)
    world.rollout("r2", arrival=20, threshold=0.1)
    for arrival in (5, 19, 20):
        world.tx(0, 500.0, arrival=arrival)
    assert kinds(world) == [Kind.PASSED, Kind.PASSED, Kind.ALERT]
    assert world.alerts()[0]["rollout_id"] == "r2"
    assert world.alerts()[0]["threshold"] == 0.1


def test_suspicious_count_is_by_clock_hours_of_arrival():
    """START is 20:30. The day of an alert: its clock hour and the 23 before it.

    arrival  20:30   next day 19:59   next day 20:00
    day      1       2                2 (20:30's hour is out)
    total    1       2                3
    """
    world = World(threshold=0.0)
    world.tx(0)
    world.tx(23 * HOUR + 29 * MINUTE)
    world.tx(23 * HOUR + 30 * MINUTE)
    assert [alert["suspicious_count"] for alert in world.alerts()] == [
        {"day": 1, "total": 1}, {"day": 2, "total": 2}, {"day": 2, "total": 3}
    ]  # fmt: skip


def test_only_alerts_count_as_suspicious():
    world = World(threshold=0.5)
    world.tx(0, 900.0)
    world.tx(1, 1.0)
    world.tx(2, 900.0)
    assert [alert["suspicious_count"]["total"] for alert in world.alerts()] == [1, 2]


GOOD = {
    "transaction_id": "t",
    "card_id": "c",
    "merchant_id": "m",
    "amount": 1,
    "currency": "EUR",
    "country": "FR",
    "event_time": START,
}


def text(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in GOOD.items() if key != name}).encode()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, Reason.EMPTY_VALUE),
        (b"", Reason.EMPTY_VALUE),
        (text(note="x" * 65_536), Reason.RECORD_TOO_LARGE),
        (text() + b"\xff", Reason.INVALID_UTF8),
        (text()[:-1], Reason.MALFORMED_JSON),
        (b"\xef\xbb\xbf" + text(), Reason.MALFORMED_JSON),
        (b"[]", Reason.NOT_AN_OBJECT),
        (text()[:-1] + b', "amount": 2}', Reason.DUPLICATE_FIELD),
        (without("transaction_id"), Reason.MISSING_FIELD),
        (without("event_time"), Reason.MISSING_FIELD),
        (text(card_id=None), Reason.WRONG_TYPE),
        (text(card_id=7), Reason.WRONG_TYPE),
        (text(card_id=""), Reason.INVALID_VALUE),
        (text(card_id="x" * 65), Reason.INVALID_VALUE),
        (text(card_id="a\nb"), Reason.INVALID_VALUE),
        (text(card_id="\ud800"), Reason.INVALID_VALUE),
        (text(amount="1"), Reason.WRONG_TYPE),
        (text(amount=True), Reason.WRONG_TYPE),
        (text(amount=float("nan")), Reason.NON_FINITE_NUMBER),
        (text(amount=float("-inf")), Reason.NON_FINITE_NUMBER),
        (text(amount=1).replace(b'"amount": 1', b'"amount": 1e999'), Reason.NON_FINITE_NUMBER),
        (text(amount=1e9 + 1), Reason.INVALID_VALUE),
        (text(amount=10**400), Reason.INVALID_VALUE),
        (text(amount=-0.01), Reason.NEGATIVE_AMOUNT),
        (text(currency="eur"), Reason.INVALID_VALUE),
        (text(currency="EUR\n"), Reason.INVALID_VALUE),
        (text(country="FRA"), Reason.INVALID_VALUE),
        (text(event_time=float(START)), Reason.WRONG_TYPE),
        (text(event_time=-1), Reason.INVALID_VALUE),
        (text(event_time=10**15), Reason.INVALID_VALUE),
        (text(card_id=1, country="FRA"), Reason.WRONG_TYPE),
        (text(amount=-1, currency="eur"), Reason.NEGATIVE_AMOUNT),
    ],
)
def test_first_failing_check_gives_the_reason(value, reason):
    assert reason_of(value) == reason


@pytest.mark.parametrize(
    "value",
    [
        text(),
        text(amount=0),
        text(amount=1e9),
        text(card_id="Ä" * 64),
        text(colour="red", nested={"a": [1, {"b": None}]}),
        text(channel=7, mcc=None),
    ],
)
def test_unknown_and_optional_fields_may_hold_anything(value):
    assert reason_of(value) is None


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        (b'{"card_id": "c"}', False),
        (b' {"card_id":"d"} ', True),
        (b'{"card_id": ""}', True),
        (b'{"card_id": "d", "more": 1}', False),
        (b'{"schema": {}, "payload": {"card_id": "d"}}', False),
        (b"d", False),
    ],
)
@pytest.mark.parametrize("op", ["u", "d"])
def test_profile_under_the_key_of_another_card_is_refused(key, refused, op):
    world = World()
    world.profile(op, arrival=0, key=key)
    outcomes = ProfileLog().read(world.profiles)
    assert [outcome.reason for outcome in outcomes] == [Reason.INVALID_VALUE] * refused


def test_invalid_records_of_the_tables_are_dead_letters_without_effect():
    rollouts = RolloutLog()
    refused = rollouts.read([Record("model-rollouts", 0, 3, START, None, b'{"schema_version": 1}')])
    assert [(outcome.offset, outcome.reason) for outcome in refused] == [(3, Reason.INVALID_VALUE)]
    assert len(rollouts) == 0
    profiles = ProfileLog()
    values = [b"{", b'{"op": "x"}', b'{"op": "u", "after": null}', b'{"op": "c", "after": {"card_id": "c"}}']
    refused = profiles.read(Record("p", 0, at, START, None, value) for at, value in enumerate(values))
    assert [outcome.reason for outcome in refused] == [
        Reason.MALFORMED_JSON, Reason.INVALID_VALUE, Reason.WRONG_TYPE, Reason.MISSING_FIELD
    ]  # fmt: skip
    assert profiles.in_force("c", START) is None

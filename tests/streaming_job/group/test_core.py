"""Outcomes of key groups (alerts, dead letters and counts) agree with the contracts and the oracle."""

import base64
import json
from collections import Counter

import numpy as np
import orjson
import pytest
from harness import job_world
from harness.group_batches import as_records
from harness.job_world import World, dead_letters, expected_alerts, load, model_ref, place, scorer
from harness.log_world import DAY, HOUR, MINUTE, SECOND, START, TOPICS
from harness.random_world import random_world
from harness.settings_of_nowhere import settings
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from thoroughness import examples

from feature_store.catalogue import NAMES
from feature_store.kernels.hashing import hash_string
from feature_store.release import RELEASE
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta
from models.feature_bins import SAMPLED
from streaming_job.contracts import Contract, Reason, validate
from streaming_job.decide import alerts
from streaming_job.decide.rollout_history import NoRolloutError
from streaming_job.group.core import GroupCore
from streaming_job.group.rules import limits_of
from streaming_job.group.silence import Silence
from streaming_job.progress.outcome import Outcome

pytestmark = pytest.mark.unit


def counted(outcome: Outcome) -> dict:
    """Counts of the champion's features, as in a progress record."""
    return orjson.loads(orjson.dumps(outcome.feature_counts(), option=orjson.OPT_SERIALIZE_NUMPY))


def values(outcomes: list[Outcome]) -> list[bytes]:
    """Alerts in the order of partitions and offsets."""
    alerts = [alert for outcome in outcomes for alert in outcome.records["fraud_alerts"]]
    return [alert.value for alert in sorted(alerts, key=lambda alert: (alert.partition, alert.offset))]


@examples(20, thorough=1000)
@given(st.integers(0, 2**32))
def test_job_alerts_exactly_where_the_oracle_does(seed):
    world = random_world(seed, partitions=3)
    expected = world.expected()
    alerts = world.alerts(cuts=(40, 90), groups=2)
    alerts.sort(key=place)
    wanted = expected_alerts(expected)
    for ours, theirs in zip(alerts, wanted, strict=True):
        assert ours.pop("score") == pytest.approx(theirs.pop("score"), rel=1e-9)
        row, wanted_row = (np.array(list(a.pop("features").values()), float) for a in (ours, theirs))
        np.testing.assert_allclose(row, wanted_row, rtol=1e-9, atol=1e-9)
        assert [r["feature"] for r in ours.pop("reasons")] == [r["feature"] for r in theirs.pop("reasons")]
        assert ours.pop("release") == RELEASE
        assert ours == theirs
    refused = sorted((o.topic, o.partition, o.offset, o.reason.value) for o in expected if o.reason)
    assert dead_letters(world.run(cuts=(40, 90), groups=2)) == refused


@examples(20, thorough=1000)
@given(st.integers(0, 2**32), st.sets(st.integers(1, 99)), st.booleans(), st.sampled_from((1, 2, 5)))
def test_alerts_are_the_same_bytes_for_any_batches_rebuilds_and_groups(
    seed, cuts, rebuild_each_batch, groups
):
    world = random_world(seed, n=100, partitions=5)
    cuts = {cut for cut in cuts if cut < len(world.transactions)}
    split = world.run(tuple(cuts), rebuild_each_batch=rebuild_each_batch, groups=groups)
    whole = world.run()
    assert values(split) == values(whole)
    assert dead_letters(split) == dead_letters(whole)
    if groups == 1:
        assert counted(split[-1]) == counted(whole[-1])
    for name in (
        "transactions", "duplicates", "conflicting_repetition", "late", "profile_changes", "rollouts",
        "missing_profile",
    ):  # fmt: skip
        assert sum(o.counts[name] for o in split) == whole[0].counts[name], name


def test_in_silence_the_state_changes_alike_and_no_alert_is_built(monkeypatch):
    world = random_world(3, n=100, partitions=1)
    rules = world.rules(1)
    built, stored = [], []
    build = alerts.build
    monkeypatch.setattr(alerts, "build", lambda *given: built.append(given) or build(*given))
    for silent in (False, True):
        pieces, state = MemoryPieces(), GroupState(MemoryArena(), keeps_ids=True)
        core = GroupCore(0, rules, state, Meta(), pieces, Silence({}))
        for records in as_records([*world.rollouts, *world.profiles]):
            core.fold(records)
        for records in as_records(world.transactions):
            core.decide(records, silent=silent)
        core.seal(pieces, {})
        stored.append({name: piece for name, piece in pieces.items() if name != "meta"})
        assert bool(built) is not silent
        assert bool(core.take_outcome().records["fraud_alerts"]) is not silent
        built.clear()
    assert stored[0] == stored[1]


def test_one_in_eight_of_the_champions_transactions_is_counted_by_its_features():
    world = World()
    for number in range(200):
        world.tx(number * MINUTE, float(number), transaction_id=f"t{number}")
    world.tx(8 * MINUTE, 8.0, arrival=201 * MINUTE, transaction_id="t8")  # a repetition
    (outcome,) = world.run()
    feature_counts = counted(outcome)
    assert feature_counts["model"]["digest"] == scorer().digest
    assert tuple(feature_counts["features"]) == NAMES
    sampled = [n for n in range(200) if hash_string(f"t{n}")[0] % SAMPLED == 0]
    assert 10 < len(sampled) < 50
    assert 8 in sampled
    assert {sum(counts) for counts in feature_counts["counts"]} == {len(sampled)}
    bins = scorer().bins
    assert bins is not None
    bounds = bins.upper[:, NAMES.index("amount")]
    expected = np.bincount(np.searchsorted(bounds, sampled), minlength=len(bounds) + 2)
    assert feature_counts["counts"][NAMES.index("amount")] == expected.tolist()


def test_alerts_and_dead_letters_keep_their_contracts_and_are_counted():
    world = random_world(7, n=300, partitions=2)
    for broken in (None, b"\xff", b'{"card_id": "\\ud800"}'):
        world.raw_tx(broken, key=None)
    (outcome,) = world.run()
    assert outcome.records["fraud_alerts"]
    for alert in outcome.records["fraud_alerts"]:
        fields = json.loads(alert.value)
        validate(Contract.ALERT, fields)
        assert alert.record_key == fields["card_id"].encode()
    reasons = {letter.reason for letter in outcome.dead_letters}
    assert {Reason.EMPTY_VALUE, Reason.TOO_LATE, Reason.INVALID_UTF8, Reason.WRONG_PARTITION} <= reasons
    log = {(record.topic, record.partition, record.offset): record for record in world.in_order()}
    for letter in outcome.dead_letters:
        fields = json.loads(letter.encode())
        validate(Contract.DEAD_LETTER, fields)
        record = log.pop((letter.topic, letter.partition, letter.offset))
        assert fields["arrival_time"] == record.timestamp
        for name, content in (("key", record.key), ("value", record.value)):
            encoded = fields[f"{name}_base64"]
            assert (None if encoded is None else base64.b64decode(encoded)) == content
    counts, read = outcome.counts, Counter(topic for topic, *_ in log)
    assert counts["transactions"] + counts["duplicates"] == read[TOPICS.transactions]
    assert counts["profile_changes"] == read[TOPICS.profiles]
    assert counts["rollouts"] == read[TOPICS.model_rollouts]
    assert outcome.scores.sum() == counts["transactions"]
    assert max(times.max_event_time for times in outcome.partitions.values()) <= START + 3 * DAY


@pytest.mark.parametrize("cuts", [(), (1, 2, 3, 4, 5)], ids=["one batch", "a batch each"])
def test_a_rollout_decides_arrivals_from_its_own_on(cuts):
    """r1 also decides transactions that arrive before any rollout.

    rollout  r1 at 10 s (threshold 1)    r2 at 20 s (0)     r3 at 30 s (1)
    arrival  5 s        10 s   19.999 s  20 s      29.999 s 30 s
    """
    world = World(rollout=False)
    world.rollout("r1", 10 * SECOND, threshold=1.0, max_count_5m=99)
    world.rollout("r2", 20 * SECOND, threshold=0.0, max_count_5m=99)
    world.rollout("r3", 30 * SECOND, threshold=1.0, max_count_5m=99, version="2")
    for arrival in (5_000, 10_000, 19_999, 20_000, 29_999, 30_000):
        world.tx(0, arrival=arrival)
    alerts = world.alerts(cuts=cuts)
    assert [alert["source"]["offset"] for alert in alerts] == [3, 4]
    assert {alert["rollout_id"] for alert in alerts} == {"r2"}
    assert alerts[0]["threshold"] == 0.0


@pytest.mark.parametrize("cuts", [(), (1,), (2,)], ids=str)
def test_a_rollout_with_an_earlier_timestamp_takes_effect_with_the_one_before(cuts):
    """A broker's clock went back: r3 follows r2 with an earlier timestamp.

    r3 must not decide transactions that r1 has decided, so it takes effect at the same time as r2.

    rollout  r1 at 0      r2 at 20 s, then r3 "at 10 s"
    tx           15 s     20 s
    """
    world = World(rollout=False)
    world.rollout("r1", 0, threshold=0.0)
    world.rollout("r2", 20 * SECOND, threshold=0.0)
    world.rollout("r3", 10 * SECOND, threshold=0.0)
    for arrival in (15_000, 20_000):
        world.tx(0, arrival=arrival)
    assert [alert["rollout_id"] for alert in world.alerts(cuts=cuts)] == ["r1", "r3"]


def test_each_rollout_scores_with_its_own_model():
    world = World(rollout=False)
    world.rollout("r1", 0, threshold=0.0, version="1")
    world.rollout("r2", SECOND, threshold=0.0, version="2")
    for arrival in (0, SECOND):
        world.tx(0, 320.0, arrival=arrival)
    alerts = world.alerts()
    assert [alert["model"]["version"] for alert in alerts] == ["1", "2"]
    for alert in alerts:
        x = np.array([[np.nan if v is None else v for v in (alert["features"][name] for name in NAMES)]])
        assert alert["score"] == scorer(alert["model"]["version"]).score(x)[0]


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 2, 3)], ids=str)
def test_a_blocked_card_is_declined_only_between_block_and_release(cuts):
    """profile   active ------- blocked at 10 s ------- active at 20 s
    arrival           9.999 s   10 s       19.999 s    20 s
    """
    world = World()
    world.profile("r", -HOUR)
    world.profile("u", 10 * SECOND, status="blocked")
    world.profile("u", 20 * SECOND, status="active")
    for arrival in (9_999, 10_000, 19_999, 20_000):
        world.tx(0, 1.0, arrival=arrival)
    alerts = world.alerts(cuts=cuts)
    assert [alert["source"]["offset"] for alert in alerts] == [1, 2]
    assert {(alert["decision"], *alert["rules"]) for alert in alerts} == {("decline", "blocked_card")}
    assert alerts[0]["profile"] == {
        "status": "blocked", "partition": 0, "offset": 1, "arrival_time": START + 10 * SECOND, "age_ms": 0
    }  # fmt: skip


def test_a_profile_that_arrived_after_the_transaction_has_no_negative_age():
    """The clock of the broker was set back: the card's profile is that of its greatest arrival so far."""
    world = World()
    world.profile("r", -HOUR)
    world.profile("u", 10 * SECOND, status="blocked")
    for arrival in (20_000, 5_000):
        world.tx(0, 1.0, arrival=arrival)
    for made in (world.alerts(), expected_alerts(world.expected())):
        assert [alert["profile"]["age_ms"] for alert in made] == [10_000, 0]


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("groups", [1, 3])
def test_rows_of_a_later_snapshot_are_known_from_their_arrival(cuts, groups):
    """The first snapshot ends, for every group, with the row of z, which is marked as its last one.

    profiles   b, z (first snapshot)          a, b (a later snapshot)
    arrival    -1 h                   0 s     10 s                       20 s
    tx                                a, b                               a, b
    """
    world = World(rollout=False, partitions=3)
    world.rollout("r1", -HOUR, threshold=0.0)
    world.profile("r", -HOUR, "b", source={"snapshot": "first", "lsn": 1})
    world.profile("r", -HOUR, "z", source={"snapshot": "last", "lsn": 1})
    for card in "ab":
        world.profile("r", 10 * SECOND, card, risk_tier=3, source={"snapshot": "true", "lsn": 2})
    for second in (0, 20):
        for card in "ab":
            world.tx(second * SECOND, card_id=card)
    alerts = world.alerts(cuts=cuts, groups=groups, rebuild_each_batch=True)
    alerts.sort(key=place)
    assert [a["profile"] for a in alerts] == [a["profile"] for a in expected_alerts(world.expected())]
    alerts.sort(key=lambda alert: (alert["arrival_time"], alert["card_id"]))
    known = [alert["profile"] and alert["profile"]["arrival_time"] for alert in alerts]
    assert known == [None, 0, START + 10 * SECOND, START + 10 * SECOND]


def test_velocity_alerts_above_its_limit():
    world = World(rollout=False)
    world.rollout("r1", 0, threshold=1.0, max_count_5m=2)
    for second in range(4):
        world.tx(second * SECOND, 1.0)
    alerts = world.alerts()
    assert [alert["source"]["offset"] for alert in alerts] == [2, 3]
    assert {(alert["decision"], *alert["rules"]) for alert in alerts} == {("review", "velocity_5m")}
    assert [alert["suspicious_count"] for alert in alerts] == [{"day": 1, "total": 1}, {"day": 2, "total": 2}]


def test_duplicate_is_no_alert_and_is_counted():
    world = World(rollout=False)
    world.rollout("r1", 0, threshold=0.0)
    for _ in range(3):
        world.tx(0, transaction_id="same")
    for cuts in ((), (1, 2)):
        outcomes = world.run(cuts)
        assert len(values(outcomes)) == 1
        assert sum(outcome.counts["duplicates"] for outcome in outcomes) == 2


@pytest.mark.parametrize("is_stranger", [True, False])
def test_a_repetition_is_recognised_with_the_greatest_lateness_and_skew(monkeypatch, is_stranger):
    """The first record's event time is as far ahead as the settings allow, the second's as late.

    With longer ones the card would be forgotten in between, and the repetition decided; they are refused.
    """
    lateness, skew = 89 * DAY, DAY
    greatest = settings(allowed_lateness_ms=lateness, allowed_skew_ms=skew)
    monkeypatch.setattr(job_world, "LIMITS", limits_of(greatest))
    world = World(rollout=False)
    world.rollout("r1", 0, threshold=0.0)
    world.tx(skew, arrival=0, transaction_id="same")
    if not is_stranger:
        world.tx(skew, arrival=0)
    world.tx(skew, arrival=skew + lateness, transaction_id="same")
    outcomes = world.run()
    assert not dead_letters(outcomes)
    assert sum(outcome.counts["duplicates"] for outcome in outcomes) == 1
    for longer in ({"allowed_lateness_ms": lateness + 1}, {"allowed_skew_ms": skew + 1}):
        with pytest.raises(ValidationError, match="less than or equal to"):
            settings(**longer)


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2, 3)], ids=str)
def test_a_reused_id_does_not_suppress_an_alert(cuts):
    """A small payment, a large one with its id, the large one again, and a large one with another id.

    The second is decided, marked as a conflicting repetition, and counted; the third is a duplicate.
    """
    world = World()
    world.tx(0, 1.0, transaction_id="same")
    for _ in range(2):
        world.tx(1, 900.0, transaction_id="same", merchant_id="n")
    world.tx(2, 900.0)
    outcomes = world.run(cuts)
    alerts = [json.loads(value) for value in values(outcomes)]
    assert [alert["source"]["offset"] for alert in alerts] == [1, 3]
    assert [alert["conflicting_repetition"] for alert in alerts] == [True, False]
    for name in ("conflicting_repetition", "duplicates"):
        assert sum(outcome.counts[name] for outcome in outcomes) == 1


@pytest.mark.parametrize("rebuild", [False, True])
def test_the_same_amount_in_another_currency_is_no_repetition(rebuild):
    world = World(rollout=False)
    world.rollout("r1", -HOUR, threshold=0.0)
    for currency in ("JPY", "EUR", "JPY"):
        world.tx(0, 100.0, transaction_id="same", currency=currency)
    outcomes = world.run((1, 2), rebuild_each_batch=rebuild)
    alerts = [json.loads(value) for value in values(outcomes)]
    assert [alert["currency"] for alert in alerts] == ["JPY", "EUR"]
    assert len({alert["alert_id"] for alert in alerts}) == 2
    assert sum(outcome.counts["duplicates"] for outcome in outcomes) == 1
    assert [alert.pop("release") for alert in alerts] == 2 * [RELEASE]
    assert alerts == expected_alerts(world.expected())


@pytest.mark.parametrize("cuts", [(), (1, 7)], ids=str)
def test_false_dates_do_not_hide_a_burst_from_the_velocity_rule(cuts):
    """Ten transactions within a second, dated an hour apart."""
    world = World(rollout=False)
    world.rollout("r1", 0, threshold=1.0, max_count_5m=8)
    for number in range(10):
        world.tx(-DAY + number * HOUR, 1.0, arrival=100 * number)
    alerts = world.alerts(cuts=cuts)
    assert [alert["source"]["offset"] for alert in alerts] == [8, 9]
    assert {tuple(alert["rules"]) for alert in alerts} == {("velocity_5m",)}
    assert [alert["features"]["count_5m"] for alert in alerts] == [1, 1]


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("status", ["blocked", "closed"])
def test_a_deleted_row_does_not_unblock_its_card(status, cuts):
    """profile   active ----- blocked at 10 s ----- deleted at 20 s ----- active at 30 s"""
    world = World()
    world.profile("r", -HOUR)
    world.profile("u", 10 * SECOND, status=status)
    world.profile("d", 20 * SECOND)
    world.profile("c", 30 * SECOND)
    for second in (9, 10, 20, 29, 30):
        world.tx(0, 1.0, arrival=second * SECOND)
    alerts = world.alerts(cuts=cuts)
    assert [alert["source"]["offset"] for alert in alerts] == [1, 2, 3]
    assert {(alert["decision"], *alert["rules"]) for alert in alerts} == {("decline", f"{status}_card")}
    assert [alert["profile"] is None for alert in alerts] == [False, True, True]


WRONG = [
    {"credit_limit": None}, {"credit_limit": "AeJA"}, {"risk_tier": 5}, {"home_country": None},
    {"currency": "__debezium_unavailable_value"}, {"opened_on": "2020-01-01"},
    {"credit_limit": None, "risk_tier": None, "home_country": None, "currency": None, "opened_on": None},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=",".join)
@pytest.mark.parametrize("rebuild", [False, True])
def test_a_block_applies_though_another_column_is_wrong(wrong, rebuild):
    """The wrong columns keep their earlier values; the corrected row with the same LSN replaces it."""
    world = World()
    world.profile("r", -HOUR, source={"lsn": 1, "snapshot": "last"}, credit_limit=500.0, risk_tier=2)
    world.profile("u", 0, source={"lsn": 5}, status="blocked", **{"risk_tier": 1, **wrong})
    world.tx(SECOND)
    world.profile("u", 2 * SECOND, source={"lsn": 5}, status="blocked", credit_limit=700.0, risk_tier=3)
    world.tx(3 * SECOND)
    outcomes = world.run((1,), rebuild_each_batch=rebuild)
    alerts = [json.loads(value) for value in values(outcomes)]
    assert [alert["rules"] for alert in alerts] == [["blocked_card"]] * 2
    first, second = (alert["features"] for alert in alerts)
    assert first["risk_tier"] == (2 if "risk_tier" in wrong else 1)
    assert first["limit_use_24h"] == 10.0 / (500.0 if "credit_limit" in wrong else 1000.0)
    assert first["away_from_home"] == 0
    assert (second["risk_tier"], second["limit_use_24h"]) == (3, 20.0 / 700.0)
    assert [(letter.offset, letter.topic) for o in outcomes for letter in o.dead_letters] == [
        (1, TOPICS.profiles)
    ]
    assert sum(outcome.counts["profile_changes"] for outcome in outcomes) == 2
    for name in ("profile", "features"):
        assert [alert[name] for alert in alerts] == [a[name] for a in expected_alerts(world.expected())]


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_wrong_row_of_an_unknown_card_counts_by_its_status_alone(rebuild):
    world = World()
    world.profile("r", -HOUR, source={"lsn": 5, "snapshot": "last"}, status="blocked", credit_limit=None)
    world.tx(SECOND)
    world.profile("r", 2 * SECOND, source={"lsn": 5, "snapshot": "last"}, status="blocked")
    world.tx(3 * SECOND)
    outcomes = world.run((1,), rebuild_each_batch=rebuild)
    alerts = [json.loads(value) for value in values(outcomes)]
    assert [alert["rules"] for alert in alerts] == [["blocked_card"]] * 2
    assert [alert["profile"] is None for alert in alerts] == [True, False]
    assert [alert["profile"] for alert in alerts] == [a["profile"] for a in expected_alerts(world.expected())]


def test_an_older_change_does_not_unblock_a_card_and_is_counted(caplog):
    """A dead letter that is replayed, or changes that Debezium sends again after a crash."""
    world = World()
    world.profile("c", 0, source={"lsn": 100, "ts_ms": START})
    world.profile("u", SECOND, source={"lsn": 300, "ts_ms": START + SECOND}, status="blocked")
    world.profile("u", 2 * SECOND, source={"lsn": 200, "ts_ms": START + 900}, status="active")
    world.tx(3 * SECOND)
    (outcome,) = world.run()
    assert [json.loads(alert.value)["rules"] for alert in outcome.records["fraud_alerts"]] == [
        ["blocked_card"]
    ]
    assert (outcome.counts["ignored_profile_changes"], outcome.counts["profile_changes"]) == (1, 3)
    assert "1 of 3 profile changes" in caplog.text


def test_a_snapshot_of_another_database_blocks_a_card():
    """The bank moved to a new cluster, whose LSNs are low; then the connector was recreated."""
    world = World()
    world.profile("r", 0, source={"lsn": 5_000_000_000, "ts_ms": START, "snapshot": "last"})
    later = {"lsn": 30_000_000, "ts_ms": START + HOUR, "snapshot": "last"}
    world.profile("r", HOUR, source=later, status="blocked")
    world.tx(2 * HOUR)
    (outcome,) = world.run()
    assert [json.loads(alert.value)["rules"] for alert in outcome.records["fraud_alerts"]] == [
        ["blocked_card"]
    ]
    assert outcome.counts["ignored_profile_changes"] == 0


def test_without_a_rollout_no_transaction_is_decided():
    world = World(rollout=False)
    world.tx(0)
    with pytest.raises(NoRolloutError, match="fraud rollouts propose --promote"):
        world.run()


def test_tables_alone_need_no_rollout():
    world = World(rollout=False)
    world.profile("r", 0)
    world.raw_tx(None)
    (outcome,) = world.run()
    assert outcome.counts["profile_changes"] == 1
    assert [letter.reason for letter in outcome.dead_letters] == [Reason.EMPTY_VALUE]


BROKEN_ROLLOUTS = [
    b"",
    b"{",
    b"\xff",
    b"[]",
    b"1",
    b"[" * 100_000,
    '{"schema_version": 1}'.encode("utf-16"),
]


@pytest.mark.parametrize("value", BROKEN_ROLLOUTS, ids=range(len(BROKEN_ROLLOUTS)))
def test_an_invalid_rollout_is_one_dead_letter_without_effect(value):
    assert_refused(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("threshold", "NaN"),
        ("threshold", "1.5"),
        ("threshold", '"0.5"'),
        ("max_count_5m", "0"),
        ("max_count_5m", "9" * 400),
        ("max_count_5m", "9" * 5000),
        ("max_count_5m", "NaN"),
        ("max_count_5m", "1" + "0" * 30),
    ],
)
def test_rollout_with_an_impossible_policy_is_refused(name, text):
    known = World()
    fields = json.loads(known.rollouts[0].value or b"")
    fields["challengers"][0]["policy"][name] = "HERE"
    assert_refused(json.dumps(fields).replace('"HERE"', text).encode())


def assert_refused(value: bytes) -> None:
    world, without = World(partitions=3), World(partitions=3)
    world.raw_rollout(value, -MINUTE)
    for each in (world, without):
        each.tx(0, 1.0)
        each.tx(SECOND, 900.0)
    (alert,) = values(without.run())
    for cuts in ((), (1,)):
        outcomes = world.run(cuts, groups=3)
        assert values(outcomes) == [alert]
        (letter,) = [letter for outcome in outcomes for letter in outcome.dead_letters]
        assert (letter.topic, letter.offset) == (TOPICS.model_rollouts, 2)
        validate(Contract.DEAD_LETTER, json.loads(letter.encode()))
        assert sum(outcome.counts["transactions"] for outcome in outcomes) == 2


def test_rollouts_are_kept_in_the_state():
    """A batch that reads no rollout decides by those of the batches before."""
    world = World(rollout=False)
    world.rollout("r1", 0, threshold=0.0)
    for second in range(3):
        world.tx(second * SECOND)
    assert len(world.alerts(cuts=(1, 2), rebuild_each_batch=True)) == 3


def test_each_partition_keeps_its_order():
    """Outcomes are in the order of partition and offset; each partition has its own greatest event time."""
    world = World(rollout=False, partitions=2)
    world.rollout("r1", 0, threshold=0.0)
    cards = {world.key_groups().partition_of(card): card for card in ("c0", "c1", "c2", "c3")}
    for second in range(6):
        world.tx(second * SECOND, card_id=cards[second % 2])
    (outcome,) = world.run()
    assert [(alert.partition, alert.offset) for alert in outcome.records["fraud_alerts"]] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)
    ]  # fmt: skip
    assert {number: times.max_event_time for number, times in outcome.partitions.items()} == {
        0: START + 4 * SECOND,
        1: START + 5 * SECOND,
    }


def test_contributions_of_the_reasons_are_the_models_own():
    world = World(rollout=False)
    world.rollout("r1", 0, threshold=0.0)
    world.tx(0, 499.0)
    (alert,) = world.alerts()
    x = np.array([[np.nan if v is None else v for v in (alert["features"][name] for name in NAMES)]])
    raised = dict(zip(NAMES, load(model_ref(alert["model"]["version"])).explain(x)[0].tolist(), strict=True))
    shown = [(reason["feature"], reason["contribution"]) for reason in alert["reasons"]]
    assert shown == sorted(shown, key=lambda pair: -pair[1])
    assert shown[0] == max(raised.items(), key=lambda pair: pair[1])
    assert all(contribution == raised[name] > 0 for name, contribution in shown)

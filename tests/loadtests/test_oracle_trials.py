"""Champion and challengers on the same transactions: deciders, written alerts, counts."""

import pytest
from harness.log_world import DAY, HOUR, MINUTE, SECOND, START
from oracle_world import World, challenger

from loadtests.oracle import Kind
from loadtests.oracle.membership import is_member, salt_of
from models.policy import Policy

pytestmark = pytest.mark.unit

SALT = salt_of("card-fraud")
MEMBER = next(f"c{n}" for n in range(1000) if is_member(f"c{n}", SALT, 1_000))
OTHER = next(f"c{n}" for n in range(1000) if not is_member(f"c{n}", SALT, 5_000))


def trial(*challengers: dict, share_bp: int = 0) -> World:
    """A trial: challengers score from START on; model 1 decides, but b for `share_bp` of the cards."""
    world = World()
    world.propose("x", *challengers)
    world.event("shadow_started", "x", 2)
    if share_bp:
        world.event("canary_set", "x", 3, challenger="b", share_bp=share_bp)
    return world


def counted(world: World, name: str = "b") -> dict[str, int]:
    world.outcomes()
    return dict(world.oracle.trials.counts().get(("x", name), {}))


def test_canary_decides_for_its_members_only():
    world = trial(challenger(threshold=0.6), share_bp=1_000)
    for card in (MEMBER, OTHER):
        world.tx(0, 350.0, card_id=card)
        world.tx(0, 600.0, card_id=card)
    first, second, third = world.alerts()
    assert [first["card_id"], second["card_id"], third["card_id"]] == [MEMBER, MEMBER, OTHER]
    assert {key: first[key] for key in ("role", "rollout_id", "rollout_seq", "score", "threshold")} == {
        "role": "canary", "rollout_id": "x", "rollout_seq": 3, "score": 0.7, "threshold": 0.6,
    }  # fmt: skip
    assert first["model"]["version"] == "2"
    assert first["policy"] == Policy(0.6, 10).digest()
    assert first["membership"]["is_member"] is True
    assert {key: third[key] for key in ("role", "rollout_id", "rollout_seq", "score")} == {
        "role": "champion", "rollout_id": "r1", "rollout_seq": 2, "score": 0.6,
    }  # fmt: skip
    assert third["challenger_failure"] is None
    assert third["membership"] == {
        "rollout_id": "x", "challenger": "b", "share_bp": 1_000, "is_member": False,
        "bucket": third["membership"]["bucket"],
    }  # fmt: skip
    assert third["membership"]["bucket"] >= 5_000
    assert counted(world)["decided"] == 2


def test_no_card_is_a_member_in_shadow():
    world = trial(challenger())
    world.tx(0, 600.0, card_id=MEMBER)
    (alert,) = world.alerts()
    assert (alert["role"], alert["membership"]) == ("champion", None)


@pytest.mark.parametrize(("amount", "failure"), [(600.99, "raised"), (600.98, "no_probability")])
def test_champion_decides_where_the_canary_fails(amount, failure):
    world = trial(challenger(version="3"), share_bp=10_000)
    world.tx(0, amount)
    world.tx(1, 600.0)
    failed, decided = world.alerts()
    assert (failed["role"], failed["challenger_failure"], failed["model_failure"]) == (
        "champion",
        failure,
        None,
    )
    assert failed["score"] == amount / 1000
    assert (decided["role"], decided["challenger_failure"]) == ("canary", None)
    counts = counted(world)
    assert (counts["transactions"], counts["decided"], counts["failures"]) == (2, 1, 1)
    assert (counts["both"], counts["only_champion"]) == (1, 1)
    (shadow,) = world.shadows()
    assert (shadow["score"], shadow["alerts"], shadow["rules"]) == (None, False, [])
    assert shadow["champion"] == {"score": amount / 1000, "alerts": True, "rules": ["score"]}


def test_shadow_alerts_are_verdicts_that_differ_from_the_champions():
    """The champion's score is amount / 1000; that of b and s is amount / 500. s alerts from 0.9 on.

    amount      100   300     600
    champion                  alert
    b                 alert   alert
    s                         alert
    """
    world = trial(challenger(), challenger("s", role="shadow", threshold=0.9))
    for at, amount in enumerate((100.0, 300.0, 600.0)):
        world.tx(at, amount)
    (shadow,) = world.shadows()
    assert {name: value for name, value in shadow.items() if name not in ("alert_id", "model")} == {
        "schema_version": 1, "card_id": "c", "transaction_id": "t1", "arrival_time": START + 1,
        "rollout_id": "x", "seq": 2, "challenger": "b", "role": "shadow", "score": 0.6, "threshold": 0.5,
        "alerts": True, "rules": ["score"], "champion": {"score": 0.3, "alerts": False, "rules": []},
        "source": {"topic": "transactions", "partition": 0, "offset": 1},
    }  # fmt: skip
    assert [outcome.kind for outcome in world.outcomes()] == [Kind.PASSED, Kind.PASSED, Kind.ALERT]


def test_champion_of_a_shadow_alert_is_the_champion_even_where_the_canary_decides():
    world = trial(challenger(), share_bp=10_000)
    world.tx(0, 300.0)
    (alert,) = world.alerts()
    (shadow,) = world.shadows()
    assert (alert["role"], alert["score"]) == ("canary", 0.6)
    assert (shadow["role"], shadow["champion"]["score"], shadow["champion"]["alerts"]) == (
        "canary",
        0.3,
        False,
    )
    assert shadow["alert_id"] == alert["alert_id"]


def test_counts_are_by_transaction_by_card_hour_and_by_card():
    """START is 20:30. b alerts where the champion does, and on amounts of 300. Card, times and amounts:

    c   20:30 300   20:31 600   21:30 300      d   20:30 300
    """
    world = trial(challenger())
    world.tx(0, 300.0)
    world.tx(0, 300.0, card_id="d")
    world.tx(MINUTE, 600.0)
    world.tx(HOUR, 300.0)
    assert counted(world) == {
        "transactions": 4, "rows": 4, "both": 1, "only_challenger": 3,
        "card_hours.both": 1, "card_hours.only_challenger": 2, "cards.both": 1, "cards.only_challenger": 1,
        "scores.11": 3, "scores.19": 1, "champion_scores.5": 3, "champion_scores.11": 1,
    }  # fmt: skip


def test_old_hours_of_a_partition_count_for_their_card_only():
    world = trial(challenger())
    world.tx(3 * HOUR, 600.0)
    world.tx(2 * HOUR, 600.0, card_id="d")
    world.tx(HOUR, 600.0, card_id="e")
    counts = counted(world)
    assert (counts["card_hours.both"], counts["cards.both"]) == (2, 3)


def test_a_partition_that_returns_to_a_trial_counts_units_anew():
    world = trial(challenger())
    for arrival in (0, -1, 0):
        world.tx(0, 600.0, arrival=arrival)
    counts = counted(world)
    assert (counts["transactions"], counts["cards.both"], counts["card_hours.both"]) == (2, 2, 2)


def test_paused_rollout_is_scored_and_decides_nothing():
    world = trial(challenger(), share_bp=10_000)
    world.event("paused", "x", 4, arrival=5)
    world.tx(0, 300.0)
    world.tx(5, 300.0)
    assert [alert["source"]["offset"] for alert in world.alerts()] == [0]
    assert [(shadow["seq"], shadow["role"]) for shadow in world.shadows()] == [(3, "canary"), (4, "shadow")]


def promoted(**policy: object) -> World:
    """Promote model 1 with another policy."""
    world = World()
    world.propose("x", challenger(version="1", **policy))
    world.event("promoted", "x", 2, challenger="b")
    return world


def test_escalated_alerts_are_declined_with_that_as_their_last_reason():
    world = promoted(escalate_after=2, max_count_5m=1)
    world.tx(0, 600.0)
    world.tx(1, 600.0)
    world.tx(2 * DAY, 600.0)
    result = [(alert["decision"], alert["rules"]) for alert in world.alerts()]
    assert result == [
        ("review", ["score"]),
        ("decline", ["score", "velocity_5m", "escalated"]),
        ("review", ["score"]),
    ]


def test_a_shadow_verdict_is_escalated_by_the_cards_written_alerts():
    world = trial(challenger(escalate_after=2))
    for second, amount in enumerate((300.0, 300.0, 600.0, 300.0)):
        world.tx(second, amount)
    rules = [shadow["rules"] for shadow in world.shadows()]
    assert rules == [["score"], ["score"], ["score", "escalated"]]


def test_reviews_within_the_cooldown_are_suppressed_and_count():
    """The cooldown is 60 s.

    second        0         60           60.001    61
    card          written   suppressed   written   suppressed
    another card                                   written
    """
    world = promoted(cooldown_s=60)
    for at in (0, MINUTE, MINUTE + 1, MINUTE + SECOND):
        world.tx(at, 600.0)
    world.tx(MINUTE + SECOND, 600.0, card_id="d")
    outcomes = world.outcomes()
    assert [outcome.kind for outcome in outcomes] == [
        Kind.ALERT, Kind.SUPPRESSED, Kind.ALERT, Kind.SUPPRESSED, Kind.ALERT
    ]  # fmt: skip
    alerts = [outcome.alert for outcome in outcomes]
    assert [alert.get("suppressed_by") for alert in alerts] == [
        None, {"arrival_time": START}, None, {"arrival_time": START + MINUTE + 1}, None
    ]  # fmt: skip
    assert [alert["suspicious_count"]["total"] for alert in alerts] == [1, 2, 3, 4, 1]


def test_declines_are_never_suppressed_and_start_a_cooldown():
    """START is 20:30. At 20:00 on the next day, of the alerts before only that of 19:59 counts."""
    world = promoted(cooldown_s=60, escalate_after=3)
    for at in (0, SECOND, 2 * SECOND, 23 * HOUR + 29 * MINUTE, 23 * HOUR + 30 * MINUTE):
        world.tx(at, 600.0)
    assert [(outcome.kind, outcome.alert["decision"]) for outcome in world.outcomes()] == [
        (Kind.ALERT, "review"), (Kind.SUPPRESSED, "review"), (Kind.ALERT, "decline"),
        (Kind.ALERT, "decline"), (Kind.SUPPRESSED, "review"),
    ]  # fmt: skip

"""The audit of trials: lost, duplicated and changed alerts of all topics, wrong members and counts."""

import json
from collections import Counter

import pytest
from audited_log import (
    ALERTS,
    MemoryLog,
    audit,
    changed,
    counts,
    job_output,
)
from harness.log_world import START
from oracle_world import World, challenger

from loadtests.audit.trial_audit import CommitTrials, TrialAudit
from loadtests.audit.verify import AuditResult

pytestmark = pytest.mark.unit


@pytest.fixture
def tried() -> MemoryLog:
    """One commit of a trial: a canary with cooldown for half of the cards, another challenger in shadow.

    The rollout event with seq 9 is out of order: a dead letter.
    """
    world = World(threshold=0.5)
    s = challenger("s", "3", role="shadow", threshold=0.9)
    world.propose("x", challenger(cooldown_s=60, escalate_after=3), s)
    world.event("shadow_started", "x", 2)
    world.event("canary_set", "x", 3, challenger="b", share_bp=5_000)
    world.event("paused", "x", 9)
    for card in range(8):
        for second, amount in enumerate((300.0, 100.0, 600.0, 300.0, 700.99)):
            world.tx(second * 1000, amount, card_id=f"c{card}")
    return job_output(world)


def of_topics(verdict: AuditResult) -> dict[str, list[int]]:
    """Topic -> [missing, duplicated, unexpected, different], for topics with faults only."""
    topics = verdict.report()["topics"]
    return {name: list(result.values()) for name, result in topics.items() if any(result.values())}


def test_trial_without_faults_is_clean(tried):
    verdict = audit(tried)
    assert verdict.is_clean, verdict.report()
    report = verdict.report()
    assert list(report)[:8] == [
        "events", "alerts", "dead_letters", "missing", "duplicated", "unexpected", "different", "topics"
    ]  # fmt: skip
    assert set(report["topics"]) == {*ALERTS, "dead-letters"}
    assert report["dead_letters_by_reason"] == {"rollout_conflict": 1}
    for name, counted in (("shadow-alerts", "shadow_alerts"), ("suppressed-alerts", "suppressed_alerts")):
        assert report[counted] == len(tried.topics[name]) > 0
    assert report["trials"]["x"]["b"]["transactions"] == report["events"] == 40
    assert 0 < report["trials"]["x"]["b"]["decided"] < 40


@pytest.mark.parametrize("name", ALERTS)
def test_lost_alert_of_any_topic_is_found(tried, name):
    del tried.topics[name][1]
    verdict = audit(tried)
    assert of_topics(verdict) == {name: [1, 0, 0, 0]}
    assert counts(verdict) == (1, 0, 0, 0)
    assert any("another digest" in problem for problem in verdict.problems)


@pytest.mark.parametrize("name", ALERTS)
def test_a_duplicated_alert_of_any_topic_is_found(tried, name):
    tried.topics[name].append(tried.topics[name][0])
    assert of_topics(audit(tried)) == {name: [0, 1, 0, 0]}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("shadow-alerts", {"rules": []}),
        ("shadow-alerts", {"alerts": False}),
        ("shadow-alerts", {"seq": 2}),
        ("shadow-alerts", {"role": "shadow"}),
        ("shadow-alerts", {"champion": {"score": 0.31, "alerts": False, "rules": []}}),
        ("suppressed-alerts", {"suppressed_by": {"arrival_time": START + 1}}),
        ("suppressed-alerts", {"suspicious_count": {"day": 9, "total": 9}}),
        ("suppressed-alerts", {"decision": "decline"}),
        ("fraud-alerts", {"policy": "0" * 64}),
        ("fraud-alerts", {"challenger_failure": "raised"}),
        ("fraud-alerts", {"rollout_seq": 7}),
    ],
)
def test_changed_alert_of_any_topic_is_found(tried, name, fields):
    alerts = tried.topics[name]
    alerts[0] = changed(alerts[0], **fields)
    assert of_topics(audit(tried)) == {name: [1, 0, 1, 1]}


def test_shadow_alert_of_another_challenger_is_missing_and_unexpected(tried):
    shadows = tried.topics["shadow-alerts"]
    shadows[0] = changed(shadows[0], challenger="z")
    assert of_topics(audit(tried)) == {"shadow-alerts": [1, 0, 1, 0]}


def test_suppressed_alert_that_was_written_is_found(tried):
    record = tried.topics["suppressed-alerts"].pop(0)
    tried.topics["fraud-alerts"].append(record._replace(topic="fraud-alerts"))
    assert of_topics(audit(tried)) == {"suppressed-alerts": [1, 0, 0, 0], "fraud-alerts": [0, 0, 1, 0]}


def test_alert_by_the_wrong_member_is_found(tried):
    """The champion decided where the canary had to."""
    alerts = tried.topics["fraud-alerts"]
    at, record = next((n, r) for n, r in enumerate(alerts) if json.loads(r.value)["role"] == "canary")
    trial = json.loads(record.value)
    side = {**trial["membership"], "is_member": False}
    alerts[at] = changed(record, role="champion", rollout_id="r1", membership=side)
    verdict = audit(tried)
    assert of_topics(verdict) == {"fraud-alerts": [1, 0, 1, 1]}
    for name in ("role", "rollout_id", "membership"):
        assert name in verdict.findings.examples[0]


def test_members_decided_by_the_champion_are_found_without_an_alert_of_it(tried):
    """If the champion decides every card by mistake, the alerts that only the canary raises are missing."""
    alerts = tried.topics["fraud-alerts"]
    mine = [r for r in alerts if json.loads(r.value)["role"] == "canary"]
    lost = [r for r in mine if json.loads(r.value)["score"] == 0.6]
    tried.topics["fraud-alerts"] = [r for r in alerts if r not in lost]
    assert of_topics(audit(tried)) == {"fraud-alerts": [len(lost), 0, 0, 0]}
    assert lost


@pytest.mark.parametrize("where", ["both", "own"])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("decided", lambda trial: trial.update(decided=trial["decided"] + 1)),
        ("failures", lambda trial: trial.update(failures=0)),
        ("card_hours.both", lambda trial: trial["card_hours"].update(both=0)),
        ("cards.only_challenger", lambda trial: trial["cards"].update(only_challenger=99)),
        ("scores.11", lambda trial: trial["scores"]["counts"].__setitem__(11, 0)),
    ],
)
def test_wrong_counts_of_trials_are_found(tried, where, name, change):
    (record,) = tried.topics["job-progress"]
    value = json.loads(record.value)
    of = "s" if name == "failures" else "b"
    change(value["trials"]["x"]["challengers"][of])
    if where == "both":
        change(value["totals"]["trials"]["x"]["challengers"][of])
    tried.topics["job-progress"] = [record._replace(value=json.dumps(value).encode())]
    verdict = audit(tried)
    assert counts(verdict) == (0, 0, 0, 0)
    assert any(f"{name} of {of} in rollout x, the oracle finds" in problem for problem in verdict.problems)
    assert any("totals of trials" in problem for problem in verdict.problems) == (where == "own")


def test_units_may_move_from_one_side_to_both_between_commits():
    """Counts of cards in each commit; commit 3 no longer has the trial, not even in its totals.

    commit 1: only_challenger 1    commit 2: both 1, only_challenger -1    commit 3: none
    """
    problems: list[str] = []
    pair = "x", "b"
    alone, moved = (
        Counter({"cards.only_challenger": 1}),
        Counter({"cards.both": 1, "cards.only_challenger": -1}),
    )
    both = Counter({"cards.both": 1})
    commits = [
        CommitTrials("1", True, 1, {pair: alone}, {pair: alone}),
        CommitTrials("2", False, 1, {pair: moved}, {pair: both}),
        CommitTrials("3", False, 1, {}, {}),
    ]
    audit = TrialAudit(problems)
    audit.check_group(commits)
    audit.check_totals({pair: both})
    assert problems == []


def test_a_trial_that_left_the_totals_may_not_return_without_its_counts():
    problems: list[str] = []
    pair, counts = ("x", "b"), Counter({"transactions": 1})
    two = Counter({"transactions": 2})
    commits = [
        CommitTrials("1", True, 1, {pair: two}, {pair: two}),
        CommitTrials("2", False, 1, {}, {}),
        CommitTrials("3", False, 1, {pair: counts}, {pair: counts}),
    ]
    TrialAudit(problems).check_group(commits)
    assert problems == ["3: the totals of trials are not the previous ones plus its own counts"]

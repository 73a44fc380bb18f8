"""Rollouts of a running job: shadow, canary, promotion, rollback, a crash in between, a replay of everything.

One story, driven by the desk, which API and command line use, while transactions stream.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from thoroughness import only_thorough

from deploy.local.stack import Endpoints
from feature_store import catalogue
from feature_store.training import training_set
from loadtests.faults.installation import UNDISTURBED, Installation
from loadtests.faults.job_process import PATIENCE_S, JobProcess
from loadtests.faults.repeater import Repeater
from loadtests.oracle.membership import is_member, salt_of
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from models import registry
from models.algorithms import QUICK
from models.pipeline import TrainingResult, fit_and_register
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import Type, installation
from service.rollouts import views
from service.rollouts.decisions import explain
from service.rollouts.desk import Desk
from service.rollouts.errors import RefusedError, UnknownError
from service.rollouts.requests import Actor, Draft, Proposal, Step
from service.settings import ServiceSettings
from streaming_job.contracts import Contract, validate
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
WaitFor = Callable[..., object]

LINE = "trials"
"""Name of the models; it salts the membership."""
TENTH = 1_000
"""Share of the cards in basis points."""
ADA = Actor("ada")
TRICKLE, PACE_S = 50, 0.25
"""Number of transactions sent every PACE_S during the whole story."""
BURST = 3_000
LIMITS = {"alpha": 0.01, "deadline_h": 1, "min_card_hours": 30}
DISAGREEMENT = {**LIMITS, "rules": [{"name": "disagreement", "max_share": 0.5}]}
LENIENT = {**LIMITS, "rules": [{"name": "alert_rate", "max_ratio": 100}]}
"""Guards that stop no rollout: even then a failing model must do no harm."""
FAILS_WITHOUT = "time_since_previous"
"""Feature that is unknown at a card's first transaction."""
CLOCKED = ("time_ms", "champion_time_ms")
"""Counts of a trial that depend on a clock."""


class Story:
    """An installation with a desk, and the conditions that steps of a rollout wait for."""

    def __init__(self, stack: Endpoints, topics: Topics, directory: Path, wait_for: WaitFor) -> None:
        # enough cards that about a tenth of those that pay are the canary's members
        self.cards = World.create(seed=11, cards=20_000, merchants=200)
        self.installed = Installation(stack, topics, directory, self.cards)
        self.settings = ServiceSettings(
            bootstrap_servers=stack.bootstrap_servers,
            job_id=self.installed.settings.job_id,
            topics=topics,
            mlflow_tracking_uri=stack.mlflow_tracking_uri,
            partitioner=self.installed.settings.partitioner,
        )
        self.desk = Desk(self.settings)
        self._wait_for = wait_for
        self._keys = 0
        self._sending = threading.Lock()

    def send(self, events: int) -> None:
        """Send transactions of the world and count them; from any thread."""
        with self._sending:
            self.installed.send(events, **UNDISTURBED)

    def caught_up(self, job: JobProcess, events: int = BURST) -> None:
        """Send transactions and wait until they are decided; no others are sent meanwhile."""
        with self._sending:
            self.installed.send(events, **UNDISTURBED)
            self.installed.caught_up(job)

    def promote(self, model: ModelRef, policy: Policy) -> None:
        """Promote the first champion."""
        asked = Proposal((_draft(model, policy),), "first", self._key(), None, "zero", at_once=True)
        assert self.desk.propose(asked, ADA).types == (Type.PROPOSED, Type.PROMOTED)

    def promote_slowly(self, model: ModelRef, policy: Policy) -> None:
        """Promote without a trial; transactions arrive between the records of the events and their commit."""
        settings = self.installed.settings
        name = f"{settings.job_id}-slow"
        producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "transactional.id": name})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for event in installation(model, policy, "slow", "ada", int(time.time() * 1000)):
            producer.produce(settings.topics.model_rollouts, event.to_json(), b"slow", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        self.send(BURST // 10)
        time.sleep(1.0)  # the fault itself: meanwhile a job that does not wait would decide the transactions
        producer.commit_transaction(PATIENCE_S)

    def propose(self, name: str, model: ModelRef, policy: Policy, guards: dict[str, Any]) -> None:
        """Propose a rollout of one challenger."""
        asked = Proposal((_draft(model, policy),), "for the story", self._key(), guards, name)
        assert self.desk.propose(asked, ADA).seq == 1

    def step(self, name: str, kind: Type, **more: Any) -> None:
        """Write the next event and wait until every key group has applied it."""
        self.desk.take(Step(name, kind, "for the story", self._key(), **more), ADA)
        self._wait_for(
            lambda: self.rollout(name)["state"] == views.APPLIED,
            deadline_s=PATIENCE_S,
            what=f"{kind}",
        )

    def canary(self, name: str) -> None:
        """Start a canary for a tenth of the cards, as soon as the guards have counts."""

        def is_taken() -> bool:
            try:
                self.step(name, Type.CANARY_SET, share_bp=TENTH)
            except RefusedError as refusal:
                if refusal.check != "guards_data":
                    raise
                return False
            return True

        self._wait_for(is_taken, deadline_s=PATIENCE_S, what="data for the guards")

    def rollout(self, name: str) -> dict[str, Any]:
        """The rollout as `GET /v1/rollouts/{id}` returns it."""
        history, job = self.desk.look()
        topic = self.installed.topics.model_rollouts
        return views.rollout(history, history.line.trials[name], job.groups, topic)

    def held_from(self, name: str, kind: Type) -> dict[int, int]:
        """Partition -> offset of the first transaction for which an event of a rollout is in force."""
        (event,) = (event for event in self.rollout(name)["events"] if event["type"] == kind.value)
        return {int(partition): offset for partition, offset in event["held_from"].items()}

    def _key(self) -> str:
        self._keys += 1
        return f"story-{self._keys}"


def _draft(model: ModelRef, policy: Policy) -> Draft:
    return Draft("c", "canary", TENTH, f"{model.name}/{model.version}", policy)


def trials(installed: Installation) -> dict[int, Any]:
    """`trials` of each key group's newest totals, without what a clock or the order of commits changes."""
    result = {}
    for record in installed.progress():
        content = json.loads(record.value or b"")
        result[content["key_group"]] = content["totals"]["trials"]
    for group in result.values():
        for trial in group.values():
            for counts in trial["challengers"].values():
                for name in CLOCKED:
                    del counts[name]
                for name in ("scores", "champion_scores"):
                    del counts[name]["sum"]  # a sum of floats depends on the order of the commits
    return result


def decoded(installed: Installation, topic: str) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in installed.read(topic)]


def streaming(story: Story) -> Repeater:
    """Return a context manager that sends transactions until it is left."""
    return Repeater(lambda: story.send(TRICKLE), PACE_S)


def history(cards: World) -> pa.Table:
    stream = Stream(cards, rate=0.5, start_ms=1_750_000_000_000, disturbances=Disturbances.none())
    return pa.concat_tables(batch.table for batch in stream.blocks(events=20_000))


def fitted(table: pa.Table, uri: str, iterations: int) -> TrainingResult:
    """A model with alerts on three transactions in ten, so that alerts show the decisions on many cards."""
    return fit_and_register(
        table, uri, learner=replace(QUICK, iterations=iterations), alert_budget=0.3, name=LINE
    )


def fitted_without_unknowns(table: pa.Table, uri: str) -> ModelRef:
    """A model that was trained without unknown values, and raises an error for rows that have any."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    columns = [catalogue.COLUMN["amount"], catalogue.COLUMN[FAILS_WITHOUT]]
    rows = training_set.build(table)[:, columns]
    known = rows[np.isfinite(rows).all(axis=1)]
    large = known[:, 0] > np.quantile(known[:, 0], 0.7)
    return registry.register(
        make_pipeline(StandardScaler(), LogisticRegression()).fit(known, large),
        tuple(catalogue.IDENTITIES[column] for column in columns),
        known[:50],
        np.median(known, axis=0),
        uri,
        name=LINE,
    )


def between(story: Story, begin: dict[int, int], end: dict[int, int]) -> list[str]:
    """Card of each transaction from the offsets `begin` up to the offsets `end`."""
    return [
        json.loads(record.value or b"")["card_id"]
        for record in story.installed.read(story.installed.topics.transactions)
        if begin[record.partition] <= record.offset < end[record.partition]
    ]


@only_thorough
def test_rollouts_from_proposal_to_promotion_and_rollback(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path, wait_for: WaitFor
) -> None:
    story = Story(stack, topic_names(), tmp_path / "first", wait_for)
    installed, topics = story.installed, story.installed.topics
    table, uri = history(story.cards), stack.mlflow_tracking_uri
    good, better = (fitted(table, uri, iterations) for iterations in (10, 25))
    fails = fitted_without_unknowns(table, uri)
    story.promote(good.ref, Policy(good.quality.threshold, 15))
    job = installed.start()
    try:
        with streaming(story):
            story.caught_up(job)
            # a rollout that is promoted; the job dies while the challenger is a canary
            policy = Policy(better.quality.threshold, 15, cooldown_s=3_600)
            story.propose("first", better.ref, policy, DISAGREEMENT)
            story.step("first", Type.SHADOW_STARTED)
            story.caught_up(job)
            story.canary("first")
            story.caught_up(job)
            job.kill()
            killed_at = installed.ends(topics.transactions)
            story.send(BURST)
            job = installed.start()
            story.caught_up(job)
            story.step("first", Type.PROMOTED)
            # a rollout of a model that raises; rolled back
            story.propose("second", fails, Policy(0.5, 15), LENIENT)
            story.step("second", Type.SHADOW_STARTED)
            story.caught_up(job, BURST // 3)
            story.canary("second")
            story.caught_up(job)
            story.step("second", Type.ROLLED_BACK)
            # a promotion whose writer is slow: transactions arrive between its records and their commit
            story.promote_slowly(good.ref, Policy(0.0, 15))
        story.caught_up(job, TRICKLE)
        assert [rollout["phase"] for rollout in views.overview(story.desk.look()[0], {}, "")["rollouts"]] == [
            "promoted", "rolled_back", "promoted", "promoted"
        ]  # fmt: skip
        assert_verified(story)
        assert_a_tenth_of_the_cards(story, killed_at)
        assert_failures_did_no_harm(story, better.ref, fails)
        assert_decisions_are_explained(story)
        assert job.terminate() == 0, job.log
        assert_replay_is_the_same(story, tmp_path / "again")
    finally:
        job.kill()


def assert_verified(story: Story) -> None:
    """Check that the audit of all topics is clean, trials included, and that outputs keep their contracts."""
    report = story.installed.audit().report()
    assert not any(count for result in report["topics"].values() for count in result.values()), report
    assert report["different"] == 0
    assert report["progress_problems"] == []
    assert report["shadow_alerts"] > 100
    assert report["suppressed_alerts"] > 10
    assert {name: [*trial] for name, trial in report["trials"].items()} == {"first": ["c"], "second": ["c"]}
    topics = story.installed.topics
    for topic, contract in (
        (topics.fraud_alerts, Contract.ALERT),
        (topics.suppressed_alerts, Contract.ALERT),
        (topics.shadow_alerts, Contract.SHADOW_ALERT),
        (topics.job_progress, Contract.JOB_PROGRESS),
    ):
        for alert in decoded(story.installed, topic)[:500]:
            validate(contract, alert)


def assert_a_tenth_of_the_cards(story: Story, killed_at: dict[int, int]) -> None:
    """Check that the canary decided for the members only, before and after the crash."""
    begin = story.held_from("first", Type.CANARY_SET)
    end = story.held_from("first", Type.PROMOTED)
    decided = sum(group["first"]["challengers"]["c"]["decided"] for group in trials(story.installed).values())
    paid = between(story, begin, end)
    seen = set(paid)
    share = sum(is_member(card, salt_of(LINE), TENTH) for card in seen) / len(seen)
    assert 0.09 < share < 0.11, (share, len(seen))
    assert decided == sum(is_member(card, salt_of(LINE), TENTH) for card in paid)
    roles: dict[bool, dict[str, set[str]]] = {before: {} for before in (True, False)}
    topics = story.installed.topics
    for alert in (
        *decoded(story.installed, topics.fraud_alerts),
        *decoded(story.installed, topics.suppressed_alerts),
    ):
        partition, offset = alert["source"]["partition"], alert["source"]["offset"]
        if begin[partition] <= offset < end[partition]:
            assert alert["membership"]["is_member"] == is_member(alert["card_id"], salt_of(LINE), TENTH)
            assert alert["role"] == ("canary" if alert["membership"]["is_member"] else "champion")
            roles[offset < killed_at[partition]].setdefault(alert["card_id"], set()).add(alert["role"])
    both = roles[True].keys() & roles[False].keys()
    assert len(both) > 20
    assert {"canary", "champion"} == set.union(*(roles[True][card] for card in both))
    for card in both:
        assert roles[True][card] == roles[False][card]


def assert_failures_did_no_harm(story: Story, champion: ModelRef, fails: ModelRef) -> None:
    """Check that the champion decided where the canary raised, and that the alert has the reason."""
    counts = [group["second"]["challengers"]["c"] for group in trials(story.installed).values()]
    assert 0 < sum(count["failures"] for count in counts) < sum(count["transactions"] for count in counts)
    alerts = decoded(story.installed, story.installed.topics.fraud_alerts)
    assert not any(alert["model_failure"] for alert in alerts)
    failed = [alert for alert in alerts if alert["challenger_failure"]]
    assert failed
    for alert in failed:
        assert alert["challenger_failure"] == "raised"
        assert alert["membership"]["is_member"]
        assert (alert["role"], alert["model"]["digest"]) == ("champion", champion.digest)
        assert alert["features"][FAILS_WITHOUT] is None
    by_it = [alert for alert in alerts if alert["model"]["digest"] == fails.digest]
    assert by_it
    assert all(alert["role"] == "canary" and alert["membership"]["is_member"] for alert in by_it)


def assert_decisions_are_explained(story: Story) -> None:
    """Check that `GET /v1/decisions` quotes all kinds of alerts, and else names the role that decided."""
    topics = story.installed.topics
    history, job = story.desk.look()

    def explained(transaction: dict[str, Any], since: int) -> dict[str, Any]:
        ids = transaction["card_id"], transaction["transaction_id"]
        return explain(story.settings, history, job.groups, *ids, since)

    alerted = {}
    for topic, outcome in ((topics.fraud_alerts, "alert"), (topics.suppressed_alerts, "suppressed")):
        alerts = decoded(story.installed, topic)
        alerted |= {alert["transaction_id"]: alert for alert in alerts}
        newest = alerts[-1]
        result = explained(newest, newest["arrival_time"])
        assert (result["outcome"], result["decision"]) == (outcome, newest)
    shadow = decoded(story.installed, topics.shadow_alerts)[-1]
    assert shadow in explained(shadow, shadow["arrival_time"])["shadow_alerts"]

    begin, end = story.held_from("first", Type.CANARY_SET), story.held_from("first", Type.PROMOTED)
    under_canary = [
        record
        for record in story.installed.read(topics.transactions)
        if begin[record.partition] <= record.offset < end[record.partition]
    ]
    for is_in_canary, role in ((True, "canary"), (False, "champion")):
        record, quiet = next(
            (record, transaction)
            for record, transaction in ((alert, json.loads(alert.value or b"")) for alert in under_canary)
            if transaction["transaction_id"] not in alerted
            and is_member(transaction["card_id"], salt_of(LINE), TENTH) == is_in_canary
        )
        result = explained(quiet, record.timestamp)
        assert (result["outcome"], result["decided_by"]["role"]) == ("no_alert", role)
        assert result["membership"]["is_member"] == is_in_canary
        assert (result["source"]["partition"], result["source"]["offset"]) == (
            record.partition,
            record.offset,
        )
    with pytest.raises(UnknownError, match="neither an alert nor the transaction"):
        explained({"card_id": "nobody", "transaction_id": "none"}, record.timestamp)


def assert_replay_is_the_same(story: Story, directory: Path) -> None:
    """Check that a new job on the same inputs writes the same alerts and trials: the same models decided."""
    of = story.installed.topics
    names = ("fraud_alerts", "shadow_alerts", "suppressed_alerts")
    fresh = {name: f"{getattr(of, name)}-again" for name in (*names, "dead_letters", "job_progress")}
    again = Installation(
        story.installed.stack,
        of.model_copy(update=fresh),
        directory,
        story.cards,
        job_id=f"{story.installed.settings.job_id}-again",
    )
    with again.start() as job:
        again.caught_up(job)
    for name in names:
        first, second = (
            Counter((record.key, record.value) for record in installed.read(getattr(installed.topics, name)))
            for installed in (story.installed, again)
        )
        assert first == second, name
    assert trials(story.installed) == trials(again)

"""The guard `precision` in the watch, at the desk and in the answers, over a log in memory."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.memory_rollouts import ADA, BOB, START, KnownModels, MemoryRollouts, proposal
from harness.rollout_records import event
from trial_progress import COUNTS, trial_progress

from models.guards.counts import Labelled
from models.guards.findings import GuardOutcome
from models.guards.verdict import recomputed
from models.rollouts.events import Type
from models.rollouts.state import Phase, Trial
from service.precision.trial import LabelCounts, LabelledTrial
from service.rollouts import labelling, verdicts
from service.rollouts.assessment import assess
from service.rollouts.desk import Desk
from service.rollouts.errors import DeskError
from service.rollouts.guard_watch import GuardWatch
from service.rollouts.reading import Job
from service.rollouts.requests import Step
from service.settings import ServiceSettings

pytestmark = pytest.mark.unit

HOUR = 3_600_000
GUARDS = {"deadline_h": 72, "rules": [{"name": "precision", "min_precision": 0.3, "min_labelled": 30}]}
UNREAD = LabelCounts(waiting_for="not read to the end")


def labelled(fraud: int, genuine: int) -> LabelCounts:
    return LabelCounts(Labelled(30, 10), {"next": Labelled(fraud, genuine)})


class World:
    """A rollout in shadow, by default with `precision` as its only guard, its labels, and a watch."""

    def __init__(self, labels: LabelCounts | None, guards: dict[str, Any] | None = GUARDS) -> None:
        self.log, self.labels = MemoryRollouts(), labels
        self.asked: list[str] = []
        self.groups = {0: trial_progress("r2", {"next": COUNTS}, written_at=START)}
        self.desk = Desk(
            ServiceSettings(bootstrap_servers="none"),
            clock=lambda: START / 1000,
            job=lambda: Job(self.groups),
            registry=KnownModels(),
            rollouts=self.log,
            labels=self.label_counts,
        )
        self.desk.propose(proposal(guards=guards), ADA)
        self.take(Type.SHADOW_STARTED)
        self.watch = GuardWatch(self.log.history, lambda: self.groups, self.desk, labels=self.label_counts)

    def label_counts(self, trial: Trial) -> LabelCounts | None:
        self.asked.append(trial.rollout_id)
        return self.labels

    def take(self, kind: Type) -> None:
        self.desk.take(Step("r2", kind, "because", kind.value), BOB)

    @property
    def phase(self) -> Phase:
        return self.log.history().line.trials["r2"].phase

    def answer(self) -> dict[str, Any]:
        """The answer of the API as parsed JSON."""
        history = self.log.history()
        assessment = assess(history, history.line.trials["r2"], self.groups, self.labels)
        answer: dict[str, Any] = json.loads(json.dumps(assessment.to_json()))
        return answer


def test_a_precision_below_the_floor_ends_the_rollout_with_evidence(tmp_path: Path) -> None:
    world = World(labelled(1, 20))
    world.watch.look()
    assert world.phase is Phase.SHADOW
    world.labels = labelled(3, 60)
    world.watch.look()
    breached, rolled_back = (entry.event for entry in world.log.history().of("r2")[-2:])
    assert (breached.type, breached.challenger, breached.guard) == (Type.BREACHED, "next", "precision")
    assert "3 frauds on 63 labelled cards: precision 0.0476, the champion 0.75" in breached.reason
    assert rolled_back.type is Type.ROLLED_BACK
    assert breached.verdict is not None
    assert breached.verdict["counts"]["labelled"] == {"fraud": 3, "genuine": 60}
    assert breached.verdict["counts"]["champion_labelled"] == {"fraud": 30, "genuine": 10}
    evidence = json.loads(json.dumps(breached.verdict))
    assert {**recomputed(evidence).to_json(), "commits": evidence["commits"]} == evidence
    file = tmp_path / "verdict.json"
    file.write_text(json.dumps(evidence))
    assert verdicts.recompute(file) == "recomputed, same verdict: breach"


def test_a_precision_above_the_floor_passes() -> None:
    world = World(labelled(40, 20))
    world.watch.look()
    assert world.watch.seen is not None
    assert world.watch.seen.assessment.outcome is GuardOutcome.PASS
    world.take(Type.CANARY_SET)
    assert world.phase is Phase.CANARY


@pytest.mark.parametrize("labels", [None, UNREAD])
def test_the_deadline_does_not_run_until_all_labels_are_read(
    labels: LabelCounts | None,
) -> None:
    """A sidecar that starts after the deadline has read no labels yet; with them the guard may pass."""
    world = World(labels)
    world.groups[0]["written_at"] = START + 1_000 * HOUR
    world.watch.look()
    assert world.phase is Phase.SHADOW
    assert world.watch.seen is not None
    assessment = world.watch.seen.assessment
    assert (assessment.outcome, assessment.without_data("next")) == (
        GuardOutcome.INSUFFICIENT,
        ("precision",),
    )
    assert "labelled" not in world.answer()["challengers"]["next"]["counts"]
    assert world.answer()["waiting_for"] == assessment.waiting_for
    assert "not judged by labels: " in "".join(verdicts.lines(assessment))
    world.labels = labelled(40, 20)
    world.watch.look()
    assert world.phase is Phase.SHADOW
    # the labels are read, and too few: now the deadline counts
    world.labels = labelled(2, 2)
    world.watch.look()
    assert world.phase is Phase.ROLLED_BACK


def test_the_other_guards_judge_while_labels_are_read() -> None:
    rules = [*GUARDS["rules"], {"name": "failures", "max_share": 0.001}]  # type: ignore[misc]
    world = World(UNREAD, {**GUARDS, "rules": rules})
    world.groups[0] = trial_progress("r2", {"next": {**COUNTS, "failures": 900}}, written_at=START)
    world.watch.look()
    assert world.phase is Phase.ROLLED_BACK
    assert world.log.history().of("r2")[-2].event.guard == "failures"


@pytest.mark.parametrize("labels", [None, UNREAD, LabelCounts(Labelled(9, 9), {"next": Labelled()})])
def test_a_canary_needs_a_labelled_card_of_the_challenger(labels: LabelCounts | None) -> None:
    world = World(labels)
    with pytest.raises(DeskError, match="the guards precision have no data on next") as refusal:
        world.take(Type.CANARY_SET)
    assert refusal.value.check == "guards_data"
    world.labels = labelled(1, 0)
    world.take(Type.CANARY_SET)
    assert world.phase is Phase.CANARY


def test_no_promotion_is_allowed_after_its_breach() -> None:
    world = World(labelled(0, 40))
    with pytest.raises(DeskError, match="guard precision of r2 is breached") as refusal:
        world.take(Type.PROMOTED)
    assert refusal.value.check == "guards"


def test_labels_are_counted_once_for_a_step_and_not_for_one_that_needs_no_evidence() -> None:
    world = World(labelled(40, 20))
    assert world.asked == []
    world.take(Type.CANARY_SET)
    assert world.asked == ["r2"]
    world.take(Type.PAUSED)
    world.take(Type.ROLLED_BACK)
    assert world.asked == ["r2"]


def test_a_challenger_that_the_job_does_not_score_has_no_labelled_cards() -> None:
    """A shadow alert records a disagreement: a challenger without any would get the champion's alerts."""
    world = World(labelled(40, 20))
    world.groups[0] = trial_progress("r2", {}, written_at=START)
    world.watch.look()
    assert world.watch.seen is not None
    assert world.watch.seen.assessment.without_data("next") == ("precision",)


def test_rollouts_without_the_guard_are_not_affected() -> None:
    world = World(labelled(0, 500), None)
    world.watch.look()
    assert world.phase is Phase.SHADOW
    assert world.answer()["waiting_for"] is None
    assert "labelled" not in world.answer()["challengers"]["next"]["counts"]


def test_a_trial_is_followed_from_its_shadow_until_its_challengers_are_no_longer_scored() -> None:
    log = MemoryRollouts()  # one event a minute; the first two roll out the champion
    desk = Desk(
        ServiceSettings(bootstrap_servers="none"),
        clock=lambda: START / 1000,
        job=lambda: Job({0: trial_progress("r2", {"next": COUNTS}, written_at=START)}),
        registry=KnownModels(),
        rollouts=log,
        labels=lambda trial: labelled(40, 20),
    )

    def running() -> LabelledTrial | None:
        return labelling.running(log.history())

    assert running() is None
    desk.propose(proposal(guards=GUARDS), ADA)
    assert running() is None
    kinds = (Type.SHADOW_STARTED, Type.CANARY_SET, Type.PAUSED, Type.RESUMED)
    for kind in kinds:
        desk.take(Step("r2", kind, "because", kind.value), BOB)
        assert running() == LabelledTrial("r2", ("next",), START + 3 * 60_000)
    desk.take(Step("r2", Type.PROMOTED, "because", "promoted"), BOB)
    history = log.history()
    assert running() is None
    over = labelling.labelled_trial(history, history.line.trials["r2"])
    assert over == LabelledTrial("r2", ("next",), START + 3 * 60_000, START + 7 * 60_000)
    assert over.covers(START + 7 * 60_000 - 1)
    assert not over.covers(START + 7 * 60_000)


def test_guards_of_another_release_are_not_followed() -> None:
    log = MemoryRollouts()
    world = World(None)
    proposed = world.log.history().of("r2")[0].event
    log.put(
        replace(proposed, guards={"rules": [{"name": "recall", "min_recall": 0.5}]}),
        event(Type.SHADOW_STARTED, "r2", 2),
    )
    assert log.history().line.open == "r2"
    assert labelling.running(log.history()) is None

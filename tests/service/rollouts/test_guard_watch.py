"""The guards' watch over a log in memory: verdicts, breaches, deadlines, several watches of one rollout."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from harness.memory_rollouts import ADA, START, KnownModels, MemoryRollouts, proposal
from trial_progress import COUNTS, trial_progress

from models.guards import policy
from models.guards.counts import PairedCounts
from models.guards.findings import GuardOutcome
from models.guards.verdict import recomputed, verdict
from models.rollouts.events import Type
from models.rollouts.state import Phase
from service.rollouts import guard_watch, verdicts
from service.rollouts.assessment import assess
from service.rollouts.desk import ATTEMPTS, Desk
from service.rollouts.errors import RefusedError
from service.rollouts.guard_watch import GuardWatch
from service.rollouts.reading import Job
from service.rollouts.requests import Step
from service.settings import ServiceSettings

pytestmark = pytest.mark.unit

HOUR = 3_600_000
FAILING = {**COUNTS, "failures": 900}


class World:
    """A rollout in some phase, progress of two key groups, and a watch."""

    def __init__(self, *kinds: Type) -> None:
        self.log = MemoryRollouts()
        self.now = START
        """The wall clock, ms."""
        self.groups: dict[int, Any] = {}
        self.progress(START)
        self.desk = Desk(
            ServiceSettings(bootstrap_servers="none"),
            clock=lambda: self.now / 1000,
            job=lambda: Job(self.groups),
            registry=KnownModels(),
            rollouts=self.log,
        )
        self.desk.propose(proposal(), ADA)
        for kind in kinds:
            self.desk.take(Step("r2", kind, "because", kind.value), ADA)
        self.watch = self.another_watch()

    def progress(self, written_at: int, counts: dict[str, Any] = COUNTS) -> None:
        """Set the current progress of the job's two groups."""
        self.groups = {
            group: trial_progress(
                "r2", {"next": counts}, written_at=written_at, key_group=group, key_groups=2
            )
            for group in range(2)
        }

    def another_watch(self) -> GuardWatch:
        return GuardWatch(self.log.history, lambda: self.groups, self.desk)

    @property
    def phase(self) -> Phase:
        return self.log.history().line.trials["r2"].phase


WATCHED = {
    Phase.SHADOW: (Type.SHADOW_STARTED,),
    Phase.CANARY: (Type.SHADOW_STARTED, Type.CANARY_SET),
    Phase.PAUSED: (Type.SHADOW_STARTED, Type.CANARY_SET, Type.PAUSED),
}


@pytest.mark.parametrize("phase", WATCHED)
def test_a_breach_ends_the_rollout_in_every_watched_phase_with_evidence(
    phase: Phase, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(*WATCHED[phase])
    world.watch.look()
    assert world.phase is phase
    world.progress(START + HOUR, FAILING)
    with caplog.at_level(logging.CRITICAL):
        world.watch.look()
    assert world.phase is Phase.ROLLED_BACK
    breached, rolled_back = (entry.event for entry in world.log.history().of("r2")[-2:])
    assert (breached.type, breached.challenger, breached.guard) == (Type.BREACHED, "next", "failures")
    assert (rolled_back.type, rolled_back.actor) == (Type.ROLLED_BACK, "guard")
    assert "guard failures is breached by next" in caplog.text
    # the evidence on the log gives the same verdict again
    assert breached.verdict is not None
    commits = {"0": 7, "1": 7}
    assert {**recomputed(breached.verdict).to_json(), "commits": commits} == breached.verdict


def test_a_proposed_rollout_is_not_watched() -> None:
    world = World()
    world.progress(START + 1_000 * HOUR, FAILING)
    world.watch.look()
    assert (world.phase, world.watch.seen) == (Phase.PROPOSED, None)


def test_of_two_watches_one_ends_the_rollout_and_the_other_reads_again() -> None:
    world = World(Type.SHADOW_STARTED)
    world.progress(START + HOUR, FAILING)
    second = world.another_watch()
    world.log.before_next_commit(second.look)
    world.watch.look()
    types = [entry.event.type for entry in world.log.history().of("r2")]
    assert types == [Type.PROPOSED, Type.SHADOW_STARTED, Type.BREACHED, Type.ROLLED_BACK]
    world.watch.look()
    assert world.watch.seen is None
    # the last verdict stays for readers that look rarely
    assert world.watch.last is not None
    assert world.watch.last.assessment.outcome is GuardOutcome.BREACH


def test_a_guard_ends_the_rollout_however_often_it_is_fenced() -> None:
    """Twice as many writers come in between as one request of the desk has attempts."""
    world = World(Type.SHADOW_STARTED)
    world.progress(START + HOUR, FAILING)
    left = 2 * ATTEMPTS

    def fence() -> None:
        nonlocal left
        if left:
            left -= 1
            world.log.open()
            world.log.before_next_commit(fence)

    world.log.before_next_commit(fence)
    world.watch.look()
    assert (world.phase, left) == (Phase.ROLLED_BACK, 0)


def test_the_watch_goes_on_after_any_error_and_says_which(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_watch, "INTERVAL_S", 0.0)
    world = World(Type.SHADOW_STARTED)
    world.progress(START, FAILING)
    faults: list[str | None] = []

    def groups() -> dict[int, Any]:
        faults.append(world.watch.fault)
        if len(faults) == 4:
            world.watch._stop.set()
        return {0: {}} if len(faults) == 2 else world.groups if len(faults) > 2 else {}

    world.watch._groups = groups
    world.watch._run()
    assert faults == [None, None, "KeyError: 'totals'", None]
    assert "guards: KeyError: 'totals'" in caplog.text
    assert world.phase is Phase.ROLLED_BACK


@pytest.mark.parametrize("key", ["guard/2/breached", "guard/2/rolled_back"])
def test_a_caller_cannot_take_the_keys_of_a_guard(key: str) -> None:
    """A key that an accepted event has is refused for every other event of the rollout."""
    world = World()
    world.desk.take(Step("r2", Type.SHADOW_STARTED, "because", key), ADA)
    world.progress(START + HOUR, FAILING)
    world.watch.look()
    assert world.phase is Phase.ROLLED_BACK
    breached, rolled_back = (entry.event for entry in world.log.history().of("r2")[-2:])
    assert (breached.type, rolled_back.type) == (Type.BREACHED, Type.ROLLED_BACK)


def test_a_caller_cannot_put_off_the_deadline() -> None:
    world = World()
    world.desk.take(Step("r2", Type.SHADOW_STARTED, "because", "guard/2/rolled_back"), ADA)
    world.progress(START + 100 * HOUR)
    world.watch.look()
    assert world.phase is Phase.ROLLED_BACK


def test_without_traffic_the_verdict_is_insufficient_until_the_deadline() -> None:
    world = World(Type.SHADOW_STARTED)
    began = world.log.history().of("r2")[-1].timestamp
    deadline = began + 72 * HOUR
    for written_at in (began, began + HOUR, deadline - 1):
        world.progress(written_at)
        world.watch.look()
        assert world.watch.seen is not None
        assert world.watch.seen.assessment.outcome is GuardOutcome.INSUFFICIENT
        assert world.phase is Phase.SHADOW
    assert world.watch.seen.since == began
    world.progress(deadline)
    world.watch.look()
    last = world.log.history().of("r2")[-1].event
    assert (last.type, last.actor) == (Type.ROLLED_BACK, "guard")
    assert "verdict still insufficient 72 hours after the shadow began" in last.reason


def test_the_deadline_does_not_run_while_the_job_is_stopped() -> None:
    """The wall clock does not count: a week in which the job is stopped does not use up the deadline."""
    world = World(Type.SHADOW_STARTED)
    for _ in range(3):
        world.now += 7 * 24 * HOUR
        world.watch.look()
    assert world.phase is Phase.SHADOW


def test_without_progress_the_verdict_is_insufficient() -> None:
    world = World(Type.SHADOW_STARTED)
    world.groups = {}
    world.watch.look()
    assert world.watch.seen is not None
    assert world.watch.seen.assessment.outcome is GuardOutcome.INSUFFICIENT
    assert world.watch.seen.assessment.without_data("next") == (
        "alert_rate", "failures", "disagreement", "scoring_time", "score_drift"
    )  # fmt: skip
    assert world.phase is Phase.SHADOW


def test_the_answer_is_the_verdict_on_the_sum_of_the_groups_counts(tmp_path: Path) -> None:
    world = World(Type.SHADOW_STARTED)
    world.progress(START, {**COUNTS, "failures": 1})
    history = world.log.history()
    content = json.loads(json.dumps(assess(history, history.line.trials["r2"], world.groups).to_json()))
    # the same verdict follows from the progress records alone
    records = [world.groups[group]["totals"]["trials"]["r2"]["challengers"]["next"] for group in (1, 0)]
    counts = PairedCounts.of_groups(PairedCounts.from_json(record) for record in records)
    assert counts.failures == 2
    again = verdict(counts, policy.read(history.line.trials["r2"].guards))
    assert content["challengers"]["next"] == json.loads(json.dumps(again.to_json()))
    assert content["verdict"] == again.outcome.value
    assert content["commits"] == {"0": 7, "1": 7}
    # and from the counts in the answer alone
    file = tmp_path / "verdict.json"
    file.write_text(json.dumps(content))
    assert verdicts.recompute(file) == "recomputed, same verdict: insufficient"
    content["challengers"]["next"]["counts"]["failures"] = 900
    file.write_text(json.dumps(content))
    with pytest.raises(RefusedError, match="does not follow from its counts, which give breach"):
        verdicts.recompute(file)
    for empty in ({**content, "challengers": {}}, {"challengers": 3}, []):
        file.write_text(json.dumps(empty))
        with pytest.raises(RefusedError, match="holds no verdict of a challenger"):
            verdicts.recompute(file)

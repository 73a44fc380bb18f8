"""The desk over a log in memory: written, repeated and refused requests, and the refusing checks."""

from dataclasses import replace
from typing import Any

import pytest
from harness.memory_rollouts import ADA, BOB, START, KnownModels, MemoryRollouts, proposal, ref
from trial_progress import COUNTS, HISTOGRAM, trial_progress

from feature_store.catalogue import DAY_MS
from feature_store.merchants.catalogue import computed
from models.guards import policy
from models.guards.rules import ScoreDrift
from models.policy import Policy
from models.rollouts.events import Type, installation
from models.rollouts.state import Phase
from service.rollouts import views
from service.rollouts.desk import Desk
from service.rollouts.errors import DeskError, StaleError
from service.rollouts.reading import Job
from service.rollouts.requests import GUARD, Actor, Draft, Receipt, Step, Stop
from service.settings import ServiceSettings

pytestmark = pytest.mark.unit

NOW_S = START / 1000


def desk_of(
    log: MemoryRollouts,
    groups: dict[int, Any] | None = None,
    registry: KnownModels | None = None,
    **settings: Any,
) -> Desk:
    return Desk(
        ServiceSettings(bootstrap_servers="none", **settings),
        clock=lambda: NOW_S,
        job=lambda: Job(groups or {}),
        registry=registry or KnownModels(),
        rollouts=log,
    )


def step(kind: Type, key: str, **more: Any) -> Step:
    return Step("r2", kind, "because", key, **more)


def judged(rollout_id: str = "r2") -> dict[int, Any]:
    """Progress in which every guard has data on the challenger."""
    return {0: trial_progress(rollout_id, {"next": COUNTS}, written_at=START)}


WAYS: dict[Phase, list[Step]] = {
    Phase.PROPOSED: [],
    Phase.SHADOW: [step(Type.SHADOW_STARTED, "s")],
    Phase.CANARY: [step(Type.SHADOW_STARTED, "s"), step(Type.CANARY_SET, "c")],
    Phase.PAUSED: [step(Type.SHADOW_STARTED, "s"), step(Type.CANARY_SET, "c"), step(Type.PAUSED, "p")],
}


@pytest.mark.parametrize("phase", WAYS)
def test_rollback_needs_no_precondition_in_any_phase(phase: Phase) -> None:
    log = MemoryRollouts()
    desk = desk_of(log, judged())
    desk.propose(proposal(), ADA)
    for kind in WAYS[phase]:
        desk.take(kind, ADA)
    assert log.history().line.trials["r2"].phase is phase
    done = desk.take(step(Type.ROLLED_BACK, "back", expected_seq=999), ADA)
    assert done.phase is Phase.ROLLED_BACK
    assert log.history().line.open is None
    assert log.history().line.champions[-1].rollout_id == "r1"


def test_the_machine_accepts_every_event_that_the_desk_writes() -> None:
    log = MemoryRollouts()
    desk = desk_of(log, judged())
    desk.propose(proposal(), ADA)
    for request in [
        *WAYS[Phase.PAUSED],
        step(Type.RESUMED, "r"),
        step(Type.PROMOTED, "u"),
        step(Type.WITHDRAWN, "w"),
    ]:
        desk.take(request, BOB)
    desk.propose(proposal("k2", rollout_id="r3"), ADA)
    desk.take(Step("r3", Type.SHADOW_STARTED, "because", "s3"), BOB)
    desk.stop(Stop("r3", 2, "too many failures", "next", "failures", {"verdict": "breach"}))
    assert not [entry for entry in log.history().entries if entry.refused or entry.repeats]
    assert {entry.event.type for name in ("r2", "r3") for entry in log.history().of(name)} == set(Type)
    assert [entry.event.type for entry in log.history().of("r2")][-2:] == [Type.PROMOTED, Type.WITHDRAWN]


def test_a_repeated_request_gets_the_same_answer() -> None:
    log = MemoryRollouts()
    desk = desk_of(log)
    first = desk.propose(proposal(rollout_id=""), ADA)
    again = desk.propose(proposal(rollout_id=""), ADA)
    assert (again, first.repeated) == (replace(first, repeated=True), False)
    moved = Step(first.rollout_id, Type.SHADOW_STARTED, "because", "s", 1)
    done = desk.take(moved, ADA)
    assert desk.take(moved, ADA) == replace(done, repeated=True)
    assert len(log.records) == 4


def test_an_idempotency_key_of_another_request_is_refused() -> None:
    log = MemoryRollouts()
    desk = desk_of(log)
    desk.propose(proposal(), ADA)
    desk.take(step(Type.SHADOW_STARTED, "s"), ADA)
    for again in (step(Type.PAUSED, "s"), replace(step(Type.SHADOW_STARTED, "s"), reason="another")):
        assert refused(lambda again=again: desk.take(again, ADA)) == "idempotency_key"
    assert refused(lambda: desk.propose(proposal(version=3), ADA)) == "idempotency_key"
    assert refused(lambda: desk.propose(proposal(at_once=True), ADA)) == "idempotency_key"
    empty = desk_of(MemoryRollouts(champion=None))
    empty.propose(proposal(at_once=True), BOB)
    assert refused(lambda: empty.propose(proposal(), BOB)) == "idempotency_key"


def test_a_proposal_that_the_job_would_refuse_for_its_size_is_refused() -> None:
    """The job makes a dead letter of it, and the desk would build on a rollout that does not exist."""
    log = MemoryRollouts()
    bounds = [number / 8_000 for number in range(1, 8_001)]
    drift = {"name": "score_drift", "max_psi": 0.2, "against": {"le": bounds, "counts": [1] * 8_001}}
    assert refused(lambda: desk_of(log).propose(proposal(guards={"rules": [drift]}), ADA)) == "contract"
    assert log.history().line.open is None


def test_a_withdrawal_that_leaves_no_champion_that_the_job_computes_is_refused() -> None:
    """The job refuses it, and the desk would propose against a champion that is not in force."""
    log = MemoryRollouts(champion=None)
    former = replace(ref(1), features=("retired:1",))
    for name, model in (("r1", former), ("r2", ref(2))):
        log.put(*installation(model, Policy(0.5, 6), name, "test", START))
    desk = desk_of(log, judged())
    assert refused(lambda: desk.take(step(Type.WITHDRAWN, "w"), BOB)) == "last_rollout"
    assert log.history().line.champions[-1].rollout_id == "r2"


def refused(ask: Any) -> str:
    with pytest.raises(DeskError) as fault:
        ask()
    return fault.value.check


def test_a_promotion_at_once_is_one_transaction_of_two_events() -> None:
    log = MemoryRollouts(champion=None)
    done = desk_of(log).propose(proposal(at_once=True), BOB)
    assert done == Receipt("r2", 2, Phase.PROMOTED, (Type.PROPOSED, Type.PROMOTED), (0, 2), False)
    again = desk_of(log).propose(proposal(at_once=True), BOB)
    assert again == replace(done, repeated=True)
    assert log.history().line.champions[-1].model == ref(2)


def test_a_request_with_a_stale_seq_is_refused_and_not_written() -> None:
    log = MemoryRollouts()
    desk = desk_of(log)
    desk.propose(proposal(), ADA)
    desk.take(step(Type.SHADOW_STARTED, "s", expected_seq=1), ADA)
    count = len(log.records)
    with pytest.raises(StaleError, match="stands at event 2") as fault:
        desk.take(step(Type.PAUSED, "p", expected_seq=1), BOB)
    assert (fault.value.check, fault.value.status, len(log.records)) == ("seq", 409, count)
    assert log.refusals == [("rollout.paused", "r2", "bob", "seq")]


def test_of_two_simultaneous_requests_one_is_written_and_one_is_stale() -> None:
    """The second request comes when the first has opened its writer, and fences that writer."""
    log = MemoryRollouts()
    desk_of(log).propose(proposal(), ADA)
    won: list[Receipt] = []
    other = step(Type.SHADOW_STARTED, "other", expected_seq=1)
    log.before_next_commit(lambda: won.append(desk_of(log).take(other, BOB)))
    with pytest.raises(StaleError) as fault:
        desk_of(log).take(step(Type.SHADOW_STARTED, "mine", expected_seq=1), ADA)
    assert fault.value.check == "seq"
    assert [event.seq for event in won] == [2]
    assert [entry.event.actor for entry in log.history().of("r2")] == ["ada", "bob"]


def test_a_writer_of_another_rollout_does_not_stop_a_request() -> None:
    """The request's writer is fenced, but the rollout has not changed: a second attempt writes the event."""
    log = MemoryRollouts()
    desk = desk_of(log)
    desk.propose(proposal(), ADA)
    log.before_next_commit(log.open)
    assert desk.take(step(Type.SHADOW_STARTED, "s", expected_seq=1), ADA).seq == 2


def test_a_refusal_that_another_writer_interrupts_is_still_audited() -> None:
    log = MemoryRollouts()
    desk_of(log).propose(proposal(), ADA)
    log.before_next_commit(log.open)
    with pytest.raises(StaleError):
        desk_of(log).take(step(Type.PAUSED, "p", expected_seq=7), BOB)
    assert log.refusals == [("rollout.paused", "r2", "bob", "seq")]


def test_a_refusal_fences_no_writer() -> None:
    log = MemoryRollouts()
    desk_of(log).propose(proposal(), ADA)
    write = log.open()
    assert refused(lambda: desk_of(log).take(step(Type.RESUMED, "r"), ADA)) == "rollout_conflict"
    assert write([], ADA) == []
    assert log.refusals == [("rollout.resumed", "r2", "ada", "rollout_conflict")]


def test_four_eyes_keep_the_proposer_from_promoting() -> None:
    log = MemoryRollouts()
    desk = desk_of(log, judged(), four_eyes=True)
    desk.propose(proposal(), ADA)
    assert refused(lambda: desk.take(step(Type.PROMOTED, "p"), replace(ADA, role="admin"))) == "four_eyes"
    desk.take(step(Type.PROMOTED, "q"), BOB)
    assert log.history().of("r2")[-1].event.approved_by == "bob"
    assert refused(lambda: desk.propose(proposal("k2", rollout_id="r3", at_once=True), BOB)) == "four_eyes"


SILENT = Policy(1.0, 2**53 - 1, blocked="ignore", closed="ignore")
NO_GUARDS = {"deadline_h": 8_760, "rules": [{"name": "scoring_time", "max_ratio": 1_000}]}


@pytest.mark.parametrize(
    ("policy_", "guards", "share_bp"),
    [(SILENT, None, 1), (Policy(0.5, 6), NO_GUARDS, 1), (Policy(0.5, 6), None, 1_001)],
    ids=["weak policy", "weak guards", "large share"],
)
def test_an_operator_may_shadow_anything_but_not_let_it_decide(
    policy_: Policy, guards: Any, share_bp: int
) -> None:
    log = MemoryRollouts()
    desk = desk_of(log, judged())
    draft = Draft("next", "canary", 1_000, "card-fraud/2", policy_)
    desk.propose(replace(proposal(guards=guards), challengers=(draft,)), ADA)
    desk.take(step(Type.SHADOW_STARTED, "s"), ADA)
    canary = step(Type.CANARY_SET, "c", share_bp=share_bp)
    assert refused(lambda: desk.take(canary, ADA)) == "insufficient_role"
    desk.take(canary, BOB)
    desk.take(step(Type.PAUSED, "p"), ADA)
    assert refused(lambda: desk.take(step(Type.RESUMED, "r"), ADA)) == "insufficient_role"
    desk.take(step(Type.RESUMED, "r2"), BOB)
    desk.take(step(Type.ROLLED_BACK, "b"), ADA)


def test_an_operator_may_neither_promote_nor_withdraw() -> None:
    log = MemoryRollouts()
    desk = desk_of(log)
    assert refused(lambda: desk.propose(proposal(at_once=True), ADA)) == "insufficient_role"
    desk.propose(proposal(), ADA)
    assert refused(lambda: desk.take(step(Type.PROMOTED, "p"), ADA)) == "insufficient_role"
    desk.take(step(Type.PROMOTED, "q"), BOB)
    assert refused(lambda: desk.take(step(Type.WITHDRAWN, "w"), ADA)) == "insufficient_role"


def test_the_installations_limit_on_shares_is_a_setting_that_enters_the_log() -> None:
    log = MemoryRollouts()
    strict, unset = desk_of(log, judged(), operator_max_share_bp=500), desk_of(log, judged())
    strict.propose(proposal(), ADA)
    strict.take(step(Type.SHADOW_STARTED, "s"), ADA)
    for desk in (strict, unset):
        assert refused(lambda desk=desk: desk.take(step(Type.CANARY_SET, "c"), ADA)) == "insufficient_role"
    unset.take(step(Type.CANARY_SET, "c", share_bp=500), ADA)


def test_four_eyes_in_the_log_bind_a_desk_without_the_setting() -> None:
    log = MemoryRollouts()
    desk_of(log, judged(), four_eyes=True).propose(proposal(), BOB)
    unset = desk_of(log, judged())
    unset.take(step(Type.SHADOW_STARTED, "s"), BOB)
    everything = step(Type.CANARY_SET, "c", share_bp=10_000)
    assert refused(lambda: unset.take(everything, BOB)) == "four_eyes"
    eve = replace(BOB, name="eve")
    unset.take(everything, eve)
    assert unset.take(everything, eve).repeated


def test_a_rollout_shows_what_its_promotion_would_loosen() -> None:
    """The second person decides about the demands, too."""
    log = MemoryRollouts()
    desk_of(log, four_eyes=False, operator_max_share_bp=5_000).propose(proposal(), ADA)
    history = log.history()
    shown = views.rollout(history, history.line.trials["r2"], {}, "model-rollouts")
    assert shown["demands"] == {"four_eyes": False, "operator_max_share_bp": 5_000}


def test_a_repeated_withdrawal_gets_its_receipt_whoever_proposed_the_champion_since() -> None:
    desk = desk_of(MemoryRollouts())
    desk.propose(proposal(), ADA)
    desk.take(step(Type.PROMOTED, "p"), BOB)
    withdrawal = step(Type.WITHDRAWN, "w")
    desk.take(withdrawal, BOB)
    desk.propose(proposal("k2", rollout_id="r3", at_once=True), BOB)
    assert desk.take(withdrawal, BOB).repeated


def test_a_canary_needs_evidence() -> None:
    log = MemoryRollouts()
    desk_of(log).propose(proposal(), ADA)
    desk_of(log).take(step(Type.SHADOW_STARTED, "s"), ADA)
    for groups in ({}, {0: trial_progress("r2", {}, written_at=START)}):
        with pytest.raises(DeskError, match=r"alert_rate, .* have no data on next") as fault:
            desk_of(log, groups).take(step(Type.CANARY_SET, "c"), ADA)
        assert fault.value.check == "guards_data"
    done = desk_of(log, judged()).take(step(Type.CANARY_SET, "c"), ADA)
    assert log.history().line.trials["r2"].share_bp == 1_000
    assert done.phase is Phase.CANARY


def test_no_step_forward_is_allowed_after_a_breach() -> None:
    log = MemoryRollouts()
    desk_of(log).propose(proposal(), ADA)
    desk_of(log).take(step(Type.SHADOW_STARTED, "s"), ADA)
    bad = {0: trial_progress("r2", {"next": {**COUNTS, "failures": 900}}, written_at=START)}
    for kind in (Type.CANARY_SET, Type.PROMOTED):
        assert refused(lambda kind=kind: desk_of(log, bad).take(step(kind, kind.value), BOB)) == "guards"
    desk_of(log, bad).take(step(Type.PAUSED, "p"), ADA)
    assert refused(lambda: desk_of(log, bad).take(step(Type.RESUMED, "r"), ADA)) == "guards"


def test_no_step_forward_is_allowed_while_no_progress_says_whether_there_is_a_breach() -> None:
    """With the id of another job, or the name of another topic, a breach would not be seen."""
    log = MemoryRollouts()
    desk_of(log).propose(proposal(), ADA)
    for way in (*WAYS[Phase.CANARY], step(Type.PAUSED, "p")):
        desk_of(log, judged()).take(way, BOB)
    for kind in (Type.RESUMED, Type.PROMOTED):
        with pytest.raises(DeskError, match="there is no progress of a job card-fraud") as fault:
            desk_of(log).take(step(kind, kind.value), BOB)
        assert fault.value.check == "guards"
        assert log.history().line.trials["r2"].phase is Phase.PAUSED
    assert desk_of(log, judged()).take(step(Type.PROMOTED, "d"), BOB).phase is Phase.PROMOTED


@pytest.mark.parametrize(
    ("asked", "check"),
    [
        (proposal(guards={"rules": [{"name": "alert_rat", "max_ratio": 2}]}), "guards"),
        (proposal(rollout_id="r1"), "rollout_conflict"),
        *((proposal(rollout_id=name), "contract") for name in ("march/2", "/", ".", "..")),
        (replace(proposal(), challengers=()), "challenger"),
        (replace(proposal(), challengers=proposal().challengers * 2), "challenger"),
        (
            replace(
                proposal(),
                challengers=tuple(Draft(n, "canary", 1, "card-fraud/2", Policy(0.5, 6)) for n in "ab"),
            ),
            "challenger",
        ),
    ],
)
def test_a_refused_proposal_names_its_check(asked: Any, check: str) -> None:
    log = MemoryRollouts()
    assert refused(lambda: desk_of(log).propose(asked, ADA)) == check
    assert len(log.records) == 2


def test_features_are_checked_against_the_running_job() -> None:
    log = MemoryRollouts()
    progress = trial_progress("r2", {}, written_at=START, features=["count_1m:1"])
    with pytest.raises(DeskError, match="the running job card-fraud does not compute amount:1") as fault:
        desk_of(log, {0: progress}).propose(proposal(), ADA)
    assert fault.value.check == "features"
    silent = {**progress, "written_at": START - 61_000}
    assert desk_of(log, {0: silent}).propose(proposal(), ADA).seq == 1


def test_a_model_of_merchant_features_needs_a_job_that_keeps_merchant_facts() -> None:
    log, registry = MemoryRollouts(), KnownModels()
    registry.features = computed(merchants=True)
    progress = trial_progress("r2", {}, written_at=START, features=list(computed(merchants=False)))
    with pytest.raises(
        DeskError, match=r"which keeps no merchant facts, .*FRAUD_MERCHANT_FACTS=true"
    ) as fault:
        desk_of(log, {0: progress}, registry).propose(proposal(), ADA)
    assert fault.value.check == "features"
    progress = {**progress, "features": list(computed(merchants=True))}
    assert desk_of(log, {0: progress}, registry).propose(proposal(), ADA).seq == 1
    # the first model is rolled out before the job has ever run: the desk leaves the check to the job
    assert desk_of(MemoryRollouts(), {}, registry).propose(proposal(), ADA).seq == 1


def test_a_model_needs_the_label_delay_that_it_was_trained_with() -> None:
    registry = KnownModels()
    registry.features, registry.label_delay_ms = computed(merchants=True), 3 * DAY_MS
    of_job = {"features": list(computed(merchants=True)), "written_at": START}
    other, same = (trial_progress("r2", {}, **of_job, label_delay_ms=days * DAY_MS) for days in (7, 3))
    with pytest.raises(
        DeskError, match="trained with a label delay of 3 days, the running job card-fraud has 7;"
    ) as fault:
        desk_of(MemoryRollouts(), {0: other}, registry).propose(proposal(), ADA)
    assert fault.value.check == "label_delay"
    assert desk_of(MemoryRollouts(), {0: same}, registry).propose(proposal(), ADA).seq == 1
    # without progress records the job's label delay is unknown and not checked
    assert desk_of(MemoryRollouts(), {}, registry).propose(proposal(), ADA).seq == 1


def test_a_rollout_that_the_job_has_set_aside_is_not_in_force() -> None:
    """The job could not load the promoted model, so a new proposal challenges the previous champion."""
    log = MemoryRollouts()
    offsets = log.put(*installation(ref(5), Policy(0.5, 6), "r5", "test", START))
    aside = trial_progress(
        "r2", {}, written_at=START, rollouts_set_aside={str(offsets[0]): "model_unavailable"}
    )
    desk_of(log, {0: aside}).propose(proposal(), ADA)
    entry = log.history().refolded({offsets[0]: "model_unavailable"}).of("r2")[0]
    assert (entry.event.champion, entry.refused) == (ref(1), "")


def test_nobody_acts_under_the_name_of_the_guards() -> None:
    log = MemoryRollouts()
    desk = desk_of(log)
    assert refused(lambda: desk.propose(proposal(), Actor(GUARD))) == "contract"
    desk.propose(proposal(), ADA)
    assert refused(lambda: desk.take(step(Type.ROLLED_BACK, "back"), Actor(GUARD, GUARD))) == "contract"
    assert len(log.records) == 3


def test_only_one_rollout_is_open() -> None:
    log = MemoryRollouts()
    desk = desk_of(log)
    desk.propose(proposal(), ADA)
    assert refused(lambda: desk.propose(proposal("k2", rollout_id="r3"), ADA)) == "rollout_conflict"


def test_a_request_for_an_unknown_rollout_is_refused() -> None:
    with pytest.raises(DeskError, match="there is no rollout r2") as fault:
        desk_of(MemoryRollouts()).take(step(Type.PAUSED, "p"), ADA)
    assert (fault.value.check, fault.value.status) == ("unknown_rollout", 404)


def test_a_breach_is_two_events_written_once_by_any_number_of_watches() -> None:
    log = MemoryRollouts()
    desk = desk_of(log)
    desk.propose(proposal(), ADA)
    desk.take(step(Type.SHADOW_STARTED, "s"), ADA)
    ending = Stop("r2", 2, "too many alerts", "next", "alert_rate", {"verdict": "breach"})
    assert desk.stop(ending).types == (Type.BREACHED, Type.ROLLED_BACK)
    with pytest.raises(StaleError):
        desk.stop(ending)
    assert [entry.event.type for entry in log.history().of("r2")][2:] == [Type.BREACHED, Type.ROLLED_BACK]


def test_a_deadline_does_not_end_a_rollout_that_has_changed_since() -> None:
    log = MemoryRollouts()
    desk = desk_of(log)
    desk.propose(proposal(), ADA)
    desk.take(step(Type.SHADOW_STARTED, "s"), ADA)
    overdue = Stop("r2", 2, "deadline: verdict still insufficient 72 hours after the shadow began")
    desk.take(step(Type.PAUSED, "p"), ADA)
    with pytest.raises(StaleError, match=r"r2 stands at event 3 .*, not 2"):
        desk.stop(overdue)
    assert desk.stop(replace(overdue, seq=3)).types == (Type.ROLLED_BACK,)


def test_the_share_of_a_canary_is_within_bounds() -> None:
    log = MemoryRollouts()
    desk = desk_of(log, judged())
    desk.propose(proposal(), ADA)
    desk.take(step(Type.SHADOW_STARTED, "s"), ADA)
    assert refused(lambda: desk.take(step(Type.CANARY_SET, "c", share_bp=10_001), ADA)) == "share_bp"
    assert refused(lambda: desk.take(step(Type.CANARY_SET, "d", challenger="who"), ADA)) == "challenger"


def test_drift_is_measured_against_training_if_its_scores_are_registered() -> None:
    known, log = KnownModels(), MemoryRollouts()
    known.scores = HISTOGRAM
    settings = ServiceSettings(bootstrap_servers="none")
    desk = Desk(settings, clock=lambda: NOW_S, job=lambda: Job({}), registry=known, rollouts=log)
    desk.propose(proposal(), ADA)
    guards = policy.read(log.history().of("r2")[0].event.guards)
    (drift,) = (rule for rule in guards.rules if isinstance(rule, ScoreDrift))
    assert drift.against is not None
    assert drift.against.total == 2_000
    assert desk.propose(proposal(), ADA).repeated

"""The state machine of rollouts: accepted events with their effects, and refused ones."""

from dataclasses import replace
from functools import reduce

import pytest
from harness.rollout_records import challenger, event, proposed
from hypothesis import given, settings
from hypothesis import strategies as st

from models.policy import Policy
from models.registry import ModelRef
from models.rollouts import machine
from models.rollouts.events import Event, Type, installation
from models.rollouts.machine import ConflictError, allowed, apply, plan
from models.rollouts.state import FINAL, TRIED, Line, Phase
from streaming_job.contracts import Reason

pytestmark = pytest.mark.unit


def model(version: str) -> ModelRef:
    digest = (version * 64)[:64]
    return ModelRef("card-fraud", version, f"models:/card-fraud/{version}", digest, ("amount:1",))


CHALLENGERS = (challenger(model("2"), "b"), challenger(model("3"), "s", "shadow"))
INSTALLED = reduce(apply, installation(model("1"), Policy(0.5, 6), "first", "me", 0), Line())
OPENED = proposed("r", *CHALLENGERS, champion=model("1"))
WAYS: dict[Phase, list[Type]] = {
    Phase.PROPOSED: [],
    Phase.SHADOW: [Type.SHADOW_STARTED],
    Phase.CANARY: [Type.SHADOW_STARTED, Type.CANARY_SET],
    Phase.PAUSED: [Type.SHADOW_STARTED, Type.CANARY_SET, Type.PAUSED],
    Phase.BREACHED: [Type.SHADOW_STARTED, Type.CANARY_SET, Type.BREACHED],
    Phase.PROMOTED: [Type.SHADOW_STARTED, Type.PROMOTED],
    Phase.ROLLED_BACK: [Type.ROLLED_BACK],
    Phase.WITHDRAWN: [Type.PROMOTED, Type.WITHDRAWN],
}


def way_to(phase: Phase) -> list[Event]:
    return [OPENED, *(event(kind, "r", seq) for seq, kind in enumerate(WAYS[phase], 2))]


def at(phase: Phase) -> Line:
    """The state in which a champion decides and the rollout `r` is in a phase."""
    return reduce(apply, way_to(phase), INSTALLED)


def following(line: Line, kind: Type, **fields: object) -> Event:
    return event(kind, "r", line.trials["r"].seq + 1, **fields)


def refusal(line: Line, made: Event) -> Reason:
    with pytest.raises(ConflictError) as caught:
        apply(line, made)
    return caught.value.reason


TRIES = ("canary_set", "paused", "breached", "rolled_back", "promoted")
FOLLOWING: dict[Phase, tuple[str, ...]] = {
    Phase.PROPOSED: ("shadow_started", "rolled_back", "promoted"),
    Phase.SHADOW: TRIES,
    Phase.CANARY: TRIES,
    Phase.PAUSED: ("canary_set", "resumed", "breached", "rolled_back", "promoted"),
    Phase.BREACHED: ("rolled_back",),
    Phase.PROMOTED: ("withdrawn",),
    Phase.ROLLED_BACK: (),
    Phase.WITHDRAWN: ("withdrawn",),
}


@pytest.mark.parametrize("phase", Phase)
def test_each_phase_is_reached_and_allows_the_events_of_the_table(phase: Phase) -> None:
    line = at(phase)
    assert line.trials["r"].phase is phase
    assert (line.open == "r") == (phase not in FINAL)
    accepted = []
    for kind in Type:
        if kind is not Type.PROPOSED:
            beginning = {"from_the_beginning": True} if kind is Type.WITHDRAWN else {}
            _, words = outcomes(line, [following(line, kind, **beginning)])
            assert words in (["accepted"], ["rollout_conflict"])
            accepted += [kind] * (words == ["accepted"])
    assert tuple(accepted) == allowed(line, "r") == FOLLOWING[phase]


@pytest.mark.parametrize("phase", sorted(set(Phase) - FINAL))
@pytest.mark.parametrize("ahead", [1, 2, 50])
def test_rolled_back_is_accepted_in_every_phase_that_is_not_final(phase: Phase, ahead: int) -> None:
    line = at(phase)
    seq = line.trials["r"].seq + ahead
    after = apply(line, event(Type.ROLLED_BACK, "r", seq))
    assert (after.open, after.trials["r"].phase, after.trials["r"].seq) == (None, Phase.ROLLED_BACK, seq)
    assert plan(after) == plan(INSTALLED)
    assert refusal(line, event(Type.ROLLED_BACK, "r", seq - ahead)) is Reason.ROLLOUT_CONFLICT


@pytest.mark.parametrize("phase", Phase)
def test_scoring_and_deciding_models_of_each_phase(phase: Phase) -> None:
    result = plan(at(phase))
    assert result is not None
    decides = (result.champion.rollout_id, result.champion.model.version)
    assert decides == (("r", "2") if phase is Phase.PROMOTED else ("first", "1"))
    roles = {Phase.CANARY: ["canary", "shadow"], Phase.SHADOW: ["shadow"] * 2, Phase.PAUSED: ["shadow"] * 2}
    assert [decider.role for decider in result.challengers] == roles.get(phase, [])
    assert (result.canary, result.share_bp) == (("b", 1_000) if phase is Phase.CANARY else ("", 0))
    assert (result.trial, result.salt) == (("r", "card-fraud/card-fraud") if phase in TRIED else (None, ""))
    assert result.seq == (at(phase).trials["r"].seq if phase in TRIED else result.champion.seq)
    assert plan(Line()) is None


def test_pause_and_resume_lead_back_to_phase_and_share() -> None:
    for phase in (Phase.SHADOW, Phase.CANARY):
        line = at(phase)
        paused = apply(line, following(line, Type.PAUSED))
        resumed = apply(paused, following(paused, Type.RESUMED))
        before, after = plan(line), plan(resumed)
        assert before is not None
        assert after is not None
        assert (after.canary, after.share_bp) == (before.canary, before.share_bp)
        assert resumed.trials["r"].phase is phase
        other = apply(paused, following(paused, Type.CANARY_SET, share_bp=50))
        assert (other.trials["r"].phase, other.trials["r"].share_bp) == (Phase.CANARY, 50)


def test_a_withdrawal_restores_the_champion_before() -> None:
    line = at(Phase.PROMOTED)
    assert plan(apply(line, following(line, Type.WITHDRAWN))) == plan(INSTALLED)
    assert refusal(INSTALLED, event(Type.WITHDRAWN, "first", 3)) is Reason.LAST_ROLLOUT
    older = apply(line, event(Type.WITHDRAWN, "first", 3))
    assert plan(older) == plan(line)
    withdrawn = at(Phase.WITHDRAWN)
    assert refusal(withdrawn, following(withdrawn, Type.WITHDRAWN)) is Reason.ROLLOUT_CONFLICT


@pytest.mark.parametrize(
    "made",
    [
        proposed("first", *CHALLENGERS, champion=model("1")),
        proposed("q", *CHALLENGERS, champion=model("2")),
        proposed("q", *CHALLENGERS, champion=None),
        replace(proposed("q", *CHALLENGERS), seq=2),
    ],
)
def test_proposals_against_another_champion_are_refused(made: Event) -> None:
    assert refusal(INSTALLED, made) is Reason.ROLLOUT_CONFLICT


def test_one_rollout_is_open_at_a_time() -> None:
    for phase in Phase:
        other = proposed("q", *CHALLENGERS)
        if phase in FINAL:
            assert apply(at(phase), other).open == "q"
            assert allowed(at(phase), "q") == (Type.PROPOSED,)
        else:
            assert refusal(at(phase), other) is Reason.ROLLOUT_CONFLICT
            assert allowed(at(phase), "q") == ()


def test_events_without_rollout_out_of_order_or_without_challenger_are_refused() -> None:
    line = at(Phase.SHADOW)
    assert refusal(line, event(Type.PAUSED, "nobody", 3)) is Reason.UNKNOWN_ROLLOUT
    for seq in (1, 2, 4):
        assert refusal(line, event(Type.PAUSED, "r", seq)) is Reason.ROLLOUT_CONFLICT
    assert refusal(line, following(line, Type.CANARY_SET, challenger="x")) is Reason.ROLLOUT_CONFLICT
    assert refusal(line, following(line, Type.PROMOTED, challenger="x")) is Reason.ROLLOUT_CONFLICT


def test_repetition_is_ignored_and_a_reused_key_is_refused() -> None:
    line = at(Phase.CANARY)
    for result in way_to(Phase.CANARY):
        assert apply(line, replace(result, created_at=5)) is line
        assert refusal(line, replace(result, reason="other")) is Reason.ROLLOUT_CONFLICT
    key = way_to(Phase.CANARY)[1].idempotency_key
    assert refusal(line, following(line, Type.PAUSED, idempotency_key=key)) is Reason.ROLLOUT_CONFLICT


KINDS = st.sampled_from([kind for kind in Type if kind is not Type.PROPOSED])
STEPS = st.lists(
    st.tuples(st.sampled_from(["p", "q"]), KINDS, st.sampled_from([0, 0, 0, -1, 1]), st.booleans()),
    max_size=25,
)


def story(steps: list[tuple[str, Type, int, bool]]) -> list[Event]:
    """Events of careless writers: proposals, and other events that mostly have the next `seq`."""
    seqs: dict[str, int] = {}
    outcomes_of = []
    for name, kind, slip, opens in steps:
        if opens or name not in seqs:
            seqs[name] = 1
            outcomes_of.append(proposed(name, *CHALLENGERS))
        seqs[name] += 1
        outcomes_of.append(event(kind, name, seqs[name] + slip))
    return outcomes_of


def outcomes(line: Line, events: list[Event]) -> tuple[Line, list[str]]:
    """The state after careless events, and the outcome of each."""
    words = []
    for sent in events:
        try:
            after = apply(line, sent)
            words.append("repeated" if after is line else "accepted")
            line = after
        except ConflictError as conflict:
            words.append(conflict.reason.value)
    return line, words


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_every_state_can_be_rolled_back_and_is_equal_in_a_replay(
    steps: list[tuple[str, Type, int, bool]],
) -> None:
    events = story(steps)
    line, words = outcomes(INSTALLED, events)
    assert outcomes(INSTALLED, events) == (line, words)
    accepted = [result for result, word in zip(events, words, strict=True) if word == "accepted"]
    assert reduce(apply, accepted, INSTALLED) == line == reduce(machine.apply_accepted, accepted, INSTALLED)
    for name in ("p", "q"):
        seqs = [result.seq for result in accepted if result.rollout_id == name]
        assert seqs == sorted(set(seqs))
    half = len(events) // 2
    assert outcomes(outcomes(INSTALLED, events[:half])[0], events[half:])[0] == line
    still = [trial for trial in line.trials.values() if trial.phase not in FINAL]
    assert [trial.rollout_id for trial in still] == ([line.open] if line.open else [])
    for trial in still:
        assert Type.ROLLED_BACK in allowed(line, trial.rollout_id)
        back = apply(line, event(Type.ROLLED_BACK, trial.rollout_id, trial.seq + 7))
        assert back.open is None
        assert back.champions == line.champions
    actual = plan(line)
    assert actual is not None
    assert sum(decider.role == "canary" for decider in actual.challengers) == bool(actual.canary)

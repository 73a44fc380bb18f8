"""The verdicts of each guard except `precision`, and their evidence."""

import json
import math
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.catalogue import HOUR_MS
from models.errors import GuardError
from models.guards.counts import Labelled, PairedCounts, Pairs
from models.guards.findings import GuardOutcome
from models.guards.policy import Guards, read
from models.guards.psi import index
from models.guards.rules import AlertRate, Disagreement, Failures, ScoreDrift, ScoringTime
from models.guards.verdict import NextStep, next_step, recomputed, verdict
from models.score_histogram import BOUNDS, ScoreHistogram
from streaming_job.decide.comparison import compare
from streaming_job.decide.ruling import Ruling
from streaming_job.progress.trials import Trials

pytestmark = pytest.mark.unit

NUMBERS = st.integers(0, 10**7)
PAIRS = st.builds(Pairs, NUMBERS, NUMBERS, NUMBERS)
HISTOGRAMS = st.builds(
    lambda counts: ScoreHistogram(counts=tuple(counts)), st.lists(NUMBERS, min_size=21, max_size=21)
)
TIMES = st.floats(0, 1e12)
COUNTS = st.builds(
    PairedCounts,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    PAIRS,
    PAIRS,
    PAIRS,
    NUMBERS,
    TIMES,
    TIMES,
    HISTOGRAMS,
    HISTOGRAMS,
)


def scores(*low_to_high: int) -> ScoreHistogram:
    return ScoreHistogram(counts=(*low_to_high, *[0] * (21 - len(low_to_high))))


GOOD = PairedCounts(
    transactions=20_000,
    verdicts=Pairs(300, 10, 10),
    card_hours=Pairs(200, 8, 8),
    cards=Pairs(100, 4, 4),
    rows=20_000,
    time_ms=11.0,
    champion_time_ms=10.0,
    scores=scores(19_000, 700, 300),
    champion_scores=scores(19_010, 695, 295),
)


def outcomes(counts: PairedCounts, guards: Guards | None = None) -> dict[str, GuardOutcome]:
    return {finding.guard: finding.outcome for finding in verdict(counts, guards or Guards()).findings}


def test_a_challenger_like_the_champion_passes_every_guard() -> None:
    assert set(outcomes(GOOD).values()) == {GuardOutcome.PASS}
    assert verdict(GOOD, Guards()).outcome is GuardOutcome.PASS


@pytest.mark.parametrize(
    ("guard", "change"),
    [
        ("alert_rate", {"card_hours": Pairs(200, 0, 400)}),
        ("alert_rate", {"card_hours": Pairs(20, 180, 0)}),
        ("failures", {"failures": 60}),
        ("disagreement", {"card_hours": Pairs(1_000, 400, 400)}),
        ("scoring_time", {"time_ms": 31.0}),
        ("score_drift", {"scores": scores(10_000, 5_000, 5_000)}),
    ],
)
def test_each_guard_alone_stops_its_kind_of_bad_model(guard: str, change: dict[str, object]) -> None:
    output = outcomes(replace(GOOD, **change))  # type: ignore[arg-type]
    assert [name for name, outcome in output.items() if outcome is GuardOutcome.BREACH] == [guard]
    assert verdict(replace(GOOD, **change), Guards()).outcome is GuardOutcome.BREACH  # type: ignore[arg-type]


def test_without_data_no_rollout_advances() -> None:
    judged = verdict(PairedCounts(), Guards())
    assert judged.outcome is GuardOutcome.INSUFFICIENT
    assert {finding.outcome for finding in judged.findings} == {GuardOutcome.INSUFFICIENT}
    assert judged.without_data == ("alert_rate", "failures", "disagreement", "scoring_time", "score_drift")
    assert next_step(judged, shadow_started_at=0, now=HOUR_MS) is NextStep.HOLD


@pytest.mark.parametrize("counts", [PairedCounts(), replace(GOOD, card_hours=Pairs(20, 0, 0))])
def test_the_deadline_turns_insufficient_into_a_rollback(counts: PairedCounts) -> None:
    judged = verdict(counts, Guards(deadline_h=2.0))
    assert next_step(judged, shadow_started_at=5, now=5 + 2 * HOUR_MS - 1) is NextStep.HOLD
    assert next_step(judged, shadow_started_at=5, now=5 + 2 * HOUR_MS) is NextStep.ROLL_BACK


def test_passes_and_breaches_do_not_depend_on_the_deadline() -> None:
    for now in (0, 1000 * HOUR_MS):
        assert next_step(verdict(GOOD, Guards()), shadow_started_at=0, now=now) is NextStep.MAY_ADVANCE
        bad = verdict(replace(GOOD, failures=60), Guards())
        assert next_step(bad, shadow_started_at=0, now=now) is NextStep.BREACHED


def test_few_card_hours_and_card_hours_without_alerts_never_pass() -> None:
    guards = Guards(min_card_hours=100, rules=(AlertRate(max_ratio=1.5),))
    assert outcomes(replace(GOOD, card_hours=Pairs(99, 0, 0)), guards) == {
        "alert_rate": GuardOutcome.INSUFFICIENT
    }
    assert outcomes(replace(GOOD, card_hours=Pairs(100, 0, 0)), guards) == {"alert_rate": GuardOutcome.PASS}
    quiet = verdict(replace(GOOD, card_hours=Pairs()), guards)
    assert (quiet.outcome, quiet.without_data) == (GuardOutcome.INSUFFICIENT, ("alert_rate",))


def test_a_model_that_fails_everything_is_stopped_after_a_dozen_transactions_at_most() -> None:
    guards = Guards(rules=(Failures(max_share=0.001),))
    first = next(
        n
        for n in range(1, 100)
        if outcomes(PairedCounts(transactions=n, failures=n), guards)["failures"] == "breach"
    )
    assert 7 <= first <= 12


def test_drift_is_measured_against_training_if_given_and_names_it() -> None:
    drifted = replace(GOOD, champion_scores=GOOD.scores)
    training = ScoreDrift(max_psi=0.25, against=scores(5_000, 5_000, 10_000))
    for rule, versus, outcome in (
        (training, "training", GuardOutcome.BREACH),
        (ScoreDrift(max_psi=0.25), "champion", GuardOutcome.PASS),
    ):
        (finding,) = verdict(drifted, Guards(rules=(rule,))).findings
        assert (finding.evidence["against"], finding.outcome) == (versus, outcome)


@pytest.mark.parametrize("common", [(), (1.0,), (0.1, 0.2, 1.0)])
def test_histograms_with_too_few_common_bounds_give_no_verdict(common: tuple[float, ...]) -> None:
    other = ScoreHistogram((0.03, *common), (10, *[10] * len(common), 0))
    assert index(GOOD.scores, other) is None
    (finding,) = verdict(GOOD, Guards(rules=(ScoreDrift(max_psi=0.25, against=other),))).findings
    assert (finding.outcome, finding.has_data) == (GuardOutcome.INSUFFICIENT, False)
    enough = ScoreHistogram((0.03, 0.1, 0.2, 0.5, 1.0), (10, 10, 10, 10, 10, 0))
    assert index(GOOD.scores, enough) is not None


@examples(40)
@given(HISTOGRAMS, HISTOGRAMS)
def test_the_index_is_symmetric_finite_and_zero_for_itself(one: ScoreHistogram, two: ScoreHistogram) -> None:
    there, back = index(one, two), index(two, one)
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert math.isclose(there, back, abs_tol=1e-9)
        assert there >= 0
        assert index(one, one) == 0


def test_the_index_equals_a_value_by_hand_over_the_common_bounds() -> None:
    tenths = ScoreHistogram(tuple(step / 10 for step in range(1, 11)), (80, 20, *[0] * 9))
    twentieths = scores(30, 30, 40)
    p, q = (80.5 / 101, 20.5 / 101), (60.5 / 101, 40.5 / 101)
    by_hand = sum((a - b) * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert index(tenths, twentieths) == pytest.approx(by_hand)


@examples(40)
@given(COUNTS)
def test_evidence_is_finite_json_that_gives_the_same_verdict(counts: PairedCounts) -> None:
    guards = Guards(
        rules=(
            AlertRate(max_ratio=1.5, min_ratio=0.5),
            Failures(max_share=0.001),
            Disagreement(max_share=0.02),
            ScoringTime(max_ratio=3.0),
            ScoreDrift(max_psi=0.25, against=scores(10, 20, 30)),
        )
    )
    judged = verdict(counts, guards)
    written = json.loads(json.dumps(judged.to_json(), allow_nan=False))
    assert recomputed(written) == judged
    assert recomputed(written).to_json() == written


@examples(30)
@given(st.lists(COUNTS, max_size=4), st.randoms())
def test_counts_of_groups_add_up_the_same_in_any_order(groups: list[PairedCounts], order: object) -> None:
    mixed = list(groups)
    order.shuffle(mixed)  # type: ignore[attr-defined]
    assert PairedCounts.of_groups(groups) == PairedCounts.of_groups(mixed)
    total = PairedCounts.of_groups(groups)
    assert total.card_hours.total == sum(group.card_hours.total for group in groups)
    assert total.scores.counts == tuple(sum(group.scores.counts[i] for group in groups) for i in range(21))
    assert PairedCounts.from_json(json.loads(json.dumps(total.to_json()))) == total


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("transactions", -1),
        ("failures", 1.5),
        ("time_ms", float("nan")),
        ("card_hours", None),
        ("scores", {"le": []}),
    ],
)
def test_invalid_counts_are_refused(field: str, value: object) -> None:
    with pytest.raises(GuardError, match="no counts of a trial"):
        verdict({**GOOD.to_json(), field: value}, Guards())
    record = GOOD.to_json()
    del record[field]
    with pytest.raises(GuardError, match=f"{field}' is missing"):
        verdict(record, Guards())


def test_guards_come_back_from_json_with_every_parameter() -> None:
    assert read(None) == Guards()
    assert read(json.loads(json.dumps(Guards().to_json()))) == Guards()
    given = {"alpha": 0.05, "rules": [{"name": "score_drift", "max_psi": 1, "against": scores(5).to_json()}]}
    records = read(given)
    assert (records.alpha, records.deadline_h) == (0.05, 72)
    assert records.rules == (ScoreDrift(max_psi=1.0, against=scores(5)),)


def rule(**parameters: object) -> dict[str, object]:
    return {"rules": [parameters]}


@pytest.mark.parametrize(
    ("given", "message", "path"),
    [
        ([], "give an object", ()),
        ({"alhpa": 0.1}, "did you mean alpha", ("alhpa",)),
        ({"alpha": 0}, r"guards.alpha is 0; give a number above 0 and at most 0.2", ("alpha",)),
        ({"alpha": True}, "give a number", ("alpha",)),
        ({"alpha": float("nan")}, "give a number", ("alpha",)),
        ({"deadline_h": "72"}, "give a number", ("deadline_h",)),
        ({"min_card_hours": 1.5}, "give an integer", ("min_card_hours",)),
        ({"min_card_hours": 10**400}, "give an integer", ("min_card_hours",)),
        ({"rules": []}, "list at least one of alert_rate", ("rules",)),
        (rule(max_ratio=1), "give an object with a name", ("rules", 0)),
        (rule(name="alert_rte", max_ratio=1), "did you mean alert_rate", ("rules", 0, "name")),
        (rule(name="recall", min=0.3), "unknown guard 'recall'", ("rules", 0, "name")),
        (rule(name="precision", min_precision=1), "at most 0.99", ("rules", 0, "min_precision")),
        (rule(name="alert_rate"), "lacks max_ratio", ("rules", 0)),
        (rule(name="alert_rate", max_rato=2), "did you mean max_ratio", ("rules", 0, "max_rato")),
        (rule(name="alert_rate", max_ratio=-1), "above 0", ("rules", 0, "max_ratio")),
        (rule(name="alert_rate", max_ratio=1, min_ratio=1), "not below", ("rules", 0, "min_ratio")),
        (rule(name="failures", max_share=0.9), "at most 0.5", ("rules", 0, "max_share")),
        (rule(name="failures", max_share=5e-324), "above 0", ("rules", 0, "max_share")),
        (rule(name="precision", min_precision=1e-310), "above 0", ("rules", 0, "min_precision")),
        (rule(name="alert_rate", max_ratio=1, min_ratio=5e-324), "above 0", ("rules", 0, "min_ratio")),
        (rule(name="score_drift", max_psi=1, against={}), "no score histogram", ("rules", 0, "against")),
        (
            rule(name="score_drift", max_psi=1, against=scores(0).to_json()),
            "no scores",
            ("rules", 0, "against"),
        ),
        ({"rules": [{"name": "failures", "max_share": 0.1}] * 2}, "again", ("rules", 1)),
    ],
)
def test_invalid_guards_are_refused_with_the_path_of_the_value(
    given: object, message: str, path: tuple[str | int, ...]
) -> None:
    with pytest.raises(GuardError, match=message) as refused:
        read(given)  # type: ignore[arg-type]
    assert refused.value.path == path
    assert "\n" not in str(refused.value)


def test_the_evidence_of_the_smallest_limits_is_finite() -> None:
    least = sys.float_info.min
    counts = PairedCounts(transactions=1_000, failures=5, card_hours=Pairs(5, 5, 5), labelled=Labelled(3, 4))
    for guards in (
        rule(name="alert_rate", max_ratio=1, min_ratio=least),
        rule(name="failures", max_share=least),
        rule(name="disagreement", max_share=least),
        rule(name="precision", min_precision=least),
    ):
        json.dumps(verdict(counts, read(guards)).to_json(), allow_nan=False)


def test_the_bounds_equal_those_of_progress_records() -> None:
    assert tuple(step / 20 for step in range(1, 21)) == BOUNDS
    values = np.array([0.0, 0.05, 0.050001, 1.0, math.nan])
    counted = ScoreHistogram.of(values)
    assert counted.counts == (2, 1, *[0] * 17, 1, 0)
    result = SimpleNamespace(
        decider=SimpleNamespace(challenger="b"),
        answer=SimpleNamespace(scores=values, failures=(), ms=1.0),
        verdicts=SimpleNamespace(alerts=values > 1),
    )
    plan, trials = SimpleNamespace(trial="r", seq=1), Trials()
    ruling = SimpleNamespace(plan=plan, champion=result, challengers=(result,), canary=None, rows=values)
    compare(trials, cast("Ruling", ruling))
    record = trials.of("r").of("b").to_json()
    assert ScoreHistogram.from_json(record["scores"]) == counted
    assert ScoreHistogram.from_json(record["champion_scores"]) == counted

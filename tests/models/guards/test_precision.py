"""The guard `precision`: its verdicts, its error rates, and its evidence."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import most_by_chance
from numpy.typing import NDArray
from thoroughness import THOROUGH, examples

from models.errors import GuardError
from models.guards.betting import log_target, log_wealth
from models.guards.counts import Labelled, PairedCounts
from models.guards.findings import Finding, GuardOutcome
from models.guards.policy import Guards, read
from models.guards.rules import Failures, Precision
from models.guards.verdict import recomputed, verdict

pytestmark = pytest.mark.unit

ALPHA = 0.01
NUMBERS = st.integers(0, 10**7)
LABELLED = st.builds(Labelled, NUMBERS, NUMBERS)
LIMITS = st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.9, 0.99])


def finding(counts: PairedCounts, rule: Precision) -> Finding:
    (result,) = verdict(counts, Guards(ALPHA, rules=(rule,))).findings
    return result


def frauds(share: float, trials: int, units: int, seed: int) -> NDArray[np.int64]:
    """Frauds among the first 1, 2, 3 ... units of a model with precision `share`, int64[trials, units]."""
    return (np.random.default_rng(seed).random((trials, units)) < share).cumsum(axis=1)


def bets(share: float, limit: float, trials: int, units: int, seed: int) -> tuple[NDArray[np.bool_], ...]:
    """Whether a breach, and whether a pass, is proved after each unit; bool[trials, units] each."""
    fraud = frauds(share, trials, units, seed)
    genuine = np.arange(1, units + 1) - fraud
    target = log_target(ALPHA)
    return (
        log_wealth(genuine, 0, fraud, 1 / limit) >= target,
        log_wealth(0, genuine, fraud, limit) >= target,
    )


@pytest.mark.parametrize("limit", [0.05, 0.3, 0.5, 0.9])
def test_a_model_at_the_limit_is_rarely_stopped_or_passed_with_a_look_after_every_label(
    limit: float,
) -> None:
    for proved in bets(limit, limit, 1_000, 3_000 if THOROUGH else 600, seed=1):
        assert proved.any(axis=1).sum() <= most_by_chance(1_000, ALPHA)


@pytest.mark.parametrize(("share", "median", "most"), [(0.0, 25, 25), (0.1, 50, 90), (0.2, 190, 450)])
def test_a_precision_below_the_limit_is_proved_within_the_documented_time(
    share: float, median: int, most: int
) -> None:
    breached, _ = bets(share, 0.3, 1_000, most, seed=2)
    first = np.where(breached.any(axis=1), breached.argmax(axis=1) + 1.0, np.inf)
    assert np.quantile(first, 0.5, method="higher") <= median
    assert np.quantile(first, 0.95, method="higher") <= most


@pytest.mark.parametrize(("share", "median", "most"), [(0.5, 60, 140), (0.7, 25, 40)])
def test_a_precision_above_the_limit_is_proved_within_the_documented_time(
    share: float, median: int, most: int
) -> None:
    _, passed = bets(share, 0.3, 1_000, most, seed=3)
    first = np.where(passed.any(axis=1), passed.argmax(axis=1) + 1.0, np.inf)
    assert np.quantile(first, 0.5, method="higher") <= median
    assert np.quantile(first, 0.95, method="higher") <= most


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_verdict_follows_from_the_bets_after_every_label(share: float) -> None:
    breached, passed = bets(share, 0.3, 5, 200, seed=4)
    fraud = frauds(share, 5, 200, seed=4)
    for trial in range(5):
        for unit in range(200):
            expected = GuardOutcome.INSUFFICIENT
            if breached[trial, unit]:
                expected = GuardOutcome.BREACH
            elif passed[trial, unit] and unit + 1 >= 40:
                expected = GuardOutcome.PASS
            cards = Labelled(int(fraud[trial, unit]), unit + 1 - int(fraud[trial, unit]))
            counts = PairedCounts(labelled=cards, champion_labelled=Labelled())
            assert finding(counts, Precision(min_precision=0.3, min_labelled=40)).outcome is expected


def test_without_labels_there_is_no_proof() -> None:
    rule = Precision(min_precision=0.3)
    for counts in (PairedCounts(), PairedCounts(labelled=Labelled(), champion_labelled=Labelled(50, 3))):
        judged = finding(counts, rule)
        assert (judged.outcome, judged.has_data) == (GuardOutcome.INSUFFICIENT, False)
    after_one = finding(PairedCounts(labelled=Labelled(1, 0), champion_labelled=Labelled()), rule)
    assert (after_one.outcome, after_one.has_data) == (GuardOutcome.INSUFFICIENT, True)


def test_a_pass_waits_for_the_minimum_and_a_breach_does_not() -> None:
    rule = Precision(min_precision=0.3, min_labelled=100)
    good, bad = (PairedCounts(labelled=Labelled(*cards)) for cards in ((99, 0), (0, 40)))
    assert finding(good, rule).outcome is GuardOutcome.INSUFFICIENT
    assert finding(good, rule).detail.endswith("99 labelled cards of 100")
    assert finding(PairedCounts(labelled=Labelled(100, 0)), rule).outcome is GuardOutcome.PASS
    assert finding(bad, rule).outcome is GuardOutcome.BREACH


def test_the_champions_precision_is_shown_and_not_judged() -> None:
    outcomes = {
        finding(PairedCounts(labelled=Labelled(20, 30), champion_labelled=champion), Precision(0.3)).outcome
        for champion in (None, Labelled(), Labelled(0, 500), Labelled(500, 0))
    }
    assert len(outcomes) == 1
    judged = finding(
        PairedCounts(labelled=Labelled(20, 30), champion_labelled=Labelled(3, 1)), Precision(0.3)
    )
    assert "precision 0.4, the champion 0.75, wanted at least 0.3" in judged.detail


@examples(60)
@given(st.none() | LABELLED, st.none() | LABELLED, LIMITS)
def test_evidence_is_finite_json_that_gives_the_same_verdict(
    labelled: Labelled | None, champion: Labelled | None, limit: float
) -> None:
    counts = PairedCounts(labelled=labelled, champion_labelled=champion)
    judged = verdict(counts, Guards(rules=(Precision(min_precision=limit), Failures(max_share=0.1))))
    written = json.loads(json.dumps(judged.to_json(), allow_nan=False))
    assert recomputed(written) == judged
    assert recomputed(written).to_json() == written


NO_SCORES = {"le": [step / 20 for step in range(1, 21)], "counts": [0] * 21, "sum": 0.0}
UNLABELLED = {
    "verdict": "breach",
    "findings": [
        {
            "guard": "alert_rate",
            "verdict": "breach",
            "has_data": True,
            "detail": "alerts in 60 card-hours, the champion in 22: ratio 2.73, wanted at most 1.5",
            "evidence": {
                "card_hours": {"both": 20, "only_champion": 2, "only_challenger": 40},
                "ratio": 2.727273,
                "log10_wealth": {"above_max": 2.904625, "within_max": -1.476226},
                "log10_target": 2.0,
            },
        },
        {
            "guard": "failures",
            "verdict": "insufficient",
            "has_data": True,
            "detail": "no score for 9 of 2000 transactions, wanted at most 0.001",
            "evidence": {
                "hits": 9,
                "trials": 2000,
                "share": 0.0045,
                "log10_wealth": {"above_max": 1.312894, "within_max": -0.981881},
                "log10_target": 2.0,
            },
        },
    ],
    "counts": {
        "transactions": 2000, "decided": 0, "failures": 9, "both": 0, "only_champion": 0,
        "only_challenger": 0, "card_hours": {"both": 20, "only_champion": 2, "only_challenger": 40},
        "cards": {"both": 0, "only_champion": 0, "only_challenger": 0}, "rows": 0, "time_ms": 0.0,
        "champion_time_ms": 0.0, "scores": NO_SCORES, "champion_scores": NO_SCORES,
    },
    "guards": {
        "alpha": 0.01, "deadline_h": 72.0, "min_card_hours": 100,
        "rules": [{"name": "alert_rate", "max_ratio": 1.5}, {"name": "failures", "max_share": 0.001}],
    },
}  # fmt: skip
"""Evidence without the guard `precision`: its counts have no labels."""


def test_evidence_without_labels_is_recomputed_byte_for_byte() -> None:
    written = json.dumps(UNLABELLED)
    assert json.dumps(recomputed(json.loads(written)).to_json()) == written


@pytest.mark.parametrize("labelled", [None, {"fraud": 1}, {"fraud": -1, "genuine": 0}, 7])
def test_invalid_counts_by_label_are_refused(labelled: object) -> None:
    with pytest.raises(GuardError, match="no counts of a trial"):
        PairedCounts.from_json({**PairedCounts().to_json(), "labelled": labelled})


def test_the_guard_is_read_from_a_policy_file_and_is_off_by_default() -> None:
    guards = read({"rules": [{"name": "precision", "min_precision": 0.2}]})
    assert guards.rules == (Precision(min_precision=0.2, min_labelled=30),)
    assert (guards.need_labels, Guards().need_labels) == (True, False)
    assert read(json.loads(json.dumps(guards.to_json()))) == guards

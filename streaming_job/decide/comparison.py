"""Counts of challengers beside the champion, on the same transactions."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models import score_histogram
from models.rollouts.machine import Plan
from streaming_job.decide.ruling import Judged, Ruling
from streaming_job.decide.trial_units import Change, TrialUnits
from streaming_job.progress.outcome import histogram
from streaming_job.progress.trials import Trials


def compare(trials: Trials, ruling: Ruling) -> None:
    """Count what a plan's challengers made of its transactions."""
    if not ruling.challengers or ruling.plan.trial is None:
        return
    trial = trials.of(ruling.plan.trial)
    trial.seq = max(trial.seq, ruling.plan.seq)
    champion = ruling.champion
    champions = champion.verdicts.alerts
    told = _scores(champion)
    for judged in ruling.challengers:
        counts = trial.of(judged.who.challenger)
        theirs = judged.verdicts.alerts
        both = int(np.count_nonzero(champions & theirs))
        decided = ruling.by_canary if judged is ruling.canary else None
        counts.numbers.update(
            transactions=ruling.rows.size,
            decided=0 if decided is None else int(np.count_nonzero(decided)),
            failures=len(judged.answer.failures),
            both=both,
            only_champion=int(np.count_nonzero(champions)) - both,
            only_challenger=int(np.count_nonzero(theirs)) - both,
            rows=ruling.rows.size,
        )
        counts.time_ms += judged.answer.ms
        counts.champion_time_ms += champion.answer.ms
        counts.scores.add(score_histogram.BOUNDS, *_scores(judged))
        counts.champion_scores.add(score_histogram.BOUNDS, *told)


def _scores(judged: Judged) -> tuple[NDArray[np.int64], float]:
    scores = judged.answer.scores
    return histogram(scores, score_histogram.BOUNDS), float(np.nansum(scores))


def enter_units(
    units: TrialUnits,
    trials: Trials,
    block: NDArray[np.void],
    plans: Sequence[Plan],
    numbers: NDArray[np.int64],
    rulings: Sequence[Ruling],
) -> None:
    """Count the card-hours and cards with an alert, each partition in its order.

    Args:
        units: of the key group; they move on.
        trials: what is added to.
        block: records of TRANSACTION, shape (n,).
        plans: that have reigned.
        numbers: which one each transaction is under, shape (n,).
        rulings: of the block's accepted transactions.
    """
    if not units and not any(ruling.challengers for ruling in rulings):
        return
    flags = np.zeros(block.size, dtype=np.int64)
    for ruling in rulings:
        for number, judged in enumerate((ruling.champion, *ruling.challengers)):
            flags[ruling.rows] |= judged.verdicts.alerts.astype(np.int64) << number
    changes = {
        ruling.plan.trial: [(Counter[str](), Counter[str]()) for _ in ruling.challengers]
        for ruling in rulings
        if ruling.challengers
    }
    partitions = block["partition"]
    edges = np.flatnonzero((partitions[1:] != partitions[:-1]) | (numbers[1:] != numbers[:-1])) + 1
    for run in np.split(np.arange(block.size), edges):
        plan = plans[int(numbers[run[0]])]
        trial = plan.trial if plan.challengers else None
        mine = units.of(int(partitions[run[0]]), trial)
        if mine is None or trial not in changes:
            continue
        rows = run[flags[run] > 0]
        found = block[rows]
        for lo, hi, arrival, who in zip(
            found["lo"].tolist(), found["hi"].tolist(), found["arrival"].tolist(), flags[rows].tolist(),
            strict=True,
        ):  # fmt: skip
            mine.enter((lo, hi), arrival, who, changes[trial])
    for ruling in rulings:
        if ruling.plan.trial is not None and ruling.challengers:
            _add(trials, ruling, changes.pop(ruling.plan.trial, []))


def _add(trials: Trials, ruling: Ruling, changes: Sequence[Change]) -> None:
    assert ruling.plan.trial is not None
    trial = trials.of(ruling.plan.trial)
    for judged, (hours, cards) in zip(ruling.challengers, changes, strict=False):
        counts = trial.of(judged.who.challenger)
        counts.card_hours.update(hours)
        counts.cards.update(cards)

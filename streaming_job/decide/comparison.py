"""Comparison of challengers with the champion: counts of their verdicts on the same transactions."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models import score_histogram
from models.rollouts.state import Plan
from streaming_job.decide.ruling import ModelResult, Ruling
from streaming_job.decide.trial_units import Change, TrialUnits
from streaming_job.progress.outcome import histogram
from streaming_job.progress.trials import Trials


def compare(trials: Trials, ruling: Ruling) -> None:
    """Count the verdicts and scores of a plan's challengers beside those of its champion."""
    if not ruling.challengers or ruling.plan.trial is None:
        return
    trial = trials.of(ruling.plan.trial)
    trial.seq = max(trial.seq, ruling.plan.seq)
    champion = ruling.champion
    champion_alerts = champion.verdicts.alerts
    champion_scores = _scores(champion)
    for result in ruling.challengers:
        counts = trial.of(result.decider.challenger)
        challenger_alerts = result.verdicts.alerts
        both = int(np.count_nonzero(champion_alerts & challenger_alerts))
        decided = ruling.by_canary if result is ruling.canary else None
        counts.numbers.update(
            transactions=ruling.rows.size,
            decided=0 if decided is None else int(np.count_nonzero(decided)),
            failures=len(result.answer.failures),
            both=both,
            only_champion=int(np.count_nonzero(champion_alerts)) - both,
            only_challenger=int(np.count_nonzero(challenger_alerts)) - both,
            rows=ruling.rows.size,
        )
        counts.time_ms += result.answer.ms
        counts.champion_time_ms += champion.answer.ms
        counts.scores.add(score_histogram.BOUNDS, *_scores(result))
        counts.champion_scores.add(score_histogram.BOUNDS, *champion_scores)


def _scores(result: ModelResult) -> tuple[NDArray[np.int64], float]:
    scores = result.answer.scores
    return histogram(scores, score_histogram.BOUNDS), float(np.nansum(scores))


def count_units(
    units: TrialUnits,
    trials: Trials,
    block: NDArray[np.void],
    plans: Sequence[Plan],
    numbers: NDArray[np.int64],
    rulings: Sequence[Ruling],
) -> None:
    """Count the card-hours and cards with an alert, each partition in log order.

    Args:
        units: the key group's units; updated in place.
        trials: counts of the trials; updated in place.
        block: records of TRANSACTION, shape (n,).
        plans: the plans that are or were in force.
        numbers: index into `plans` for each transaction, shape (n,).
        rulings: the rulings of the block's accepted transactions.
    """
    if not units and not any(ruling.challengers for ruling in rulings):
        return
    flags = np.zeros(block.size, dtype=np.int64)
    for ruling in rulings:
        for number, result in enumerate((ruling.champion, *ruling.challengers)):
            flags[ruling.rows] |= result.verdicts.alerts.astype(np.int64) << number
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
        partition_units = units.of(int(partitions[run[0]]), trial)
        if partition_units is None or trial not in changes:
            continue
        rows = run[flags[run] > 0]
        alerted = block[rows]
        for lo, hi, arrival, alert_flags in zip(
            alerted["lo"].tolist(), alerted["hi"].tolist(), alerted["arrival"].tolist(), flags[rows].tolist(),
            strict=True,
        ):  # fmt: skip
            partition_units.add((lo, hi), arrival, alert_flags, changes[trial])
    for ruling in rulings:
        if ruling.plan.trial is not None and ruling.challengers:
            _add(trials, ruling, changes.pop(ruling.plan.trial, []))


def _add(trials: Trials, ruling: Ruling, changes: Sequence[Change]) -> None:
    assert ruling.plan.trial is not None
    trial = trials.of(ruling.plan.trial)
    for result, (hours, cards) in zip(ruling.challengers, changes, strict=False):
        counts = trial.of(result.decider.challenger)
        counts.card_hours.update(hours)
        counts.cards.update(cards)

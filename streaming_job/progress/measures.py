"""Counts and times of decided transactions, for the progress record."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from feature_store.layout import BEGINNING, EMPTY, joined
from feature_store.state.group_state import GroupState
from streaming_job.decide.decider import Decisions
from streaming_job.progress.outcome import (
    LATENESS_MS,
    PROFILE_AGE_MS,
    SCORES,
    Outcome,
    PartitionTimes,
    histogram,
)

_LATENESS_BOUNDS = np.array(LATENESS_MS)
_PROFILE_AGE_BOUNDS = np.array(PROFILE_AGE_MS)
_BUCKETS = len(LATENESS_MS) + 1


def keep(outcome: Outcome, batch: NDArray[np.void], decisions: Decisions, state: GroupState) -> None:
    """Keep what `measure` needs of some transactions.

    Args:
        outcome: the outcome, updated in place.
        batch: records of `feature_store.layout.TRANSACTION`, grouped by partition, shape (n,).
        state: the state after them.
    """
    if not batch.size:
        return
    versions = decisions.version[decisions.accepted]
    known_from = state.profiles["arrival"][versions[versions >= 0]]
    outcome.unmeasured.append((batch, decisions, known_from))


def measure(outcome: Outcome) -> None:
    """Add the counts and times of all transactions that were kept, and of their scores, to an outcome.

    It is called once for a Kafka transaction. A call for each mini-batch would take a tenth of a key group's
    processor time, because most mini-batches have few transactions.
    """
    if outcome.unscored:
        scores = np.concatenate(outcome.unscored)
        outcome.unscored.clear()
        outcome.scores = outcome.scores + histogram(scores, SCORES)
        outcome.sums["scores"] += float(np.nansum(scores))  # type: ignore[assignment]
    if not outcome.unmeasured:
        return
    batches, decided, known_from = zip(*outcome.unmeasured, strict=True)
    outcome.unmeasured.clear()
    batch = joined(batches)
    accepted, conflicting, late, version = (
        np.concatenate([getattr(decisions, name) for decisions in decided])
        for name in ("accepted", "conflicting", "late", "version")
    )
    with_profile = accepted & (version >= 0)
    transactions = int(np.count_nonzero(accepted))
    outcome.counts["transactions"] += transactions
    outcome.counts["duplicates"] += batch.size - transactions
    outcome.counts["conflicting_repetition"] += int(np.count_nonzero(conflicting))
    outcome.counts["late"] += int(np.count_nonzero(late & accepted))
    outcome.counts["missing_profile"] += int(np.count_nonzero(accepted & (version == EMPTY)))
    arrivals = np.ascontiguousarray(batch["arrival"])
    outcome.arrivals = np.concatenate((outcome.arrivals, arrivals))
    _add_times(outcome, batch, arrivals)
    if with_profile.any():
        _add_profile_ages(outcome, arrivals[with_profile], np.concatenate(known_from))


def _add_times(outcome: Outcome, batch: NDArray[np.void], arrivals: NDArray[np.int64]) -> None:
    times, partitions = batch["time"], batch["partition"]
    lateness = arrivals - times
    outcome.sums["lateness_ms"] += int(np.maximum(lateness, 0).sum())
    buckets = _LATENESS_BOUNDS.searchsorted(lateness)
    # the records of a mini-batch are grouped by partition
    edges = [0, *(np.flatnonzero(partitions[1:] != partitions[:-1]) + 1).tolist(), batch.size]
    for start, end in pairwise(edges):
        counts = np.bincount(buckets[start:end], minlength=_BUCKETS)
        outcome.lateness = outcome.lateness + counts
        seen = PartitionTimes(int(times[start:end].max()), int(arrivals[start:end].max()), counts)
        partition = int(partitions[start])
        if partition in outcome.partitions:
            outcome.partitions[partition].add(seen)
        else:
            outcome.partitions[partition] = seen


def _add_profile_ages(outcome: Outcome, arrivals: NDArray[np.int64], known_from: NDArray[np.int64]) -> None:
    """Add the ages of the profiles with which transactions were decided.

    Args:
        outcome: the outcome, updated in place.
        arrivals: arrivals of the transactions, ms, shape (n,).
        known_from: arrivals of their profiles, ms, shape (n,); BEGINNING: the profile counts as known from
            the beginning, so it has no age and is left out.
    """
    aged = known_from != BEGINNING
    ages = np.maximum(arrivals[aged] - known_from[aged], 0)
    outcome.profile_ages = outcome.profile_ages + np.bincount(
        _PROFILE_AGE_BOUNDS.searchsorted(ages), minlength=len(PROFILE_AGE_MS) + 1
    )
    outcome.sums["profile_age_ms"] += int(ages.sum())

"""What a key group's batch looked like, for its progress record."""

import numpy as np
from numpy.typing import NDArray

from feature_store.group_state import GroupState
from feature_store.layout import BEGINNING
from streaming_job.decide.decider import Decided
from streaming_job.progress.outcome import (
    ARRIVAL_BINS,
    LATENESS_MS,
    PROFILE_AGE_MS,
    Outcome,
    PartitionTimes,
    histogram,
)


def measure(
    outcome: Outcome, batch: NDArray[np.void], cards: NDArray[np.int32], decided: Decided, state: GroupState
) -> None:
    """Fill in the counts and times of a batch.

    Args:
        outcome: of the batch; altered.
        batch: records of TRANSACTION in log order, shape (n,).
        cards: number of each one's card, shape (n,).
        decided: what they came to.
        state: after the batch.
    """
    accepted = decided.accepted
    outcome.counts["transactions"] = int(accepted.sum())
    outcome.counts["duplicates"] = int((~accepted).sum())
    outcome.counts["late"] = int((decided.late & accepted).sum())
    outcome.counts["missing_profile"] = int(((decided.version < 0) & accepted).sum())
    if not batch.size:
        return
    lateness = batch["arrival"] - batch["time"]
    buckets = np.searchsorted(LATENESS_MS, lateness, side="left")
    # log order: each partition's records lie together
    starts = np.flatnonzero(np.diff(batch["partition"], prepend=batch["partition"][0] - 1))
    counts = np.bincount(
        np.repeat(np.arange(starts.size), np.diff(starts, append=batch.size)) * (len(LATENESS_MS) + 1)
        + buckets,
        minlength=starts.size * (len(LATENESS_MS) + 1),
    ).reshape(starts.size, -1)
    latest, newest = (np.maximum.reduceat(batch[name], starts) for name in ("time", "arrival"))
    if starts.size > 1:
        outcome.counts["split_cards"] = _split(batch["partition"], cards, state.numbers_given)
    for number, partition in enumerate(batch["partition"][starts].tolist()):
        outcome.partitions[partition] = PartitionTimes(
            int(latest[number]), int(newest[number]), counts[number]
        )
    outcome.lateness = counts.sum(axis=0)
    outcome.sums["lateness_ms"] = int(np.maximum(lateness, 0).sum())
    outcome.sums["arrivals"] = int(batch["arrival"].sum())
    known_from = state.profiles["arrival"][decided.version]  # -1 takes the last one; left out below
    aged = accepted & (decided.version >= 0) & (known_from != BEGINNING)
    ages = np.maximum(batch["arrival"][aged] - known_from[aged], 0)
    outcome.profile_ages = histogram(ages.astype(np.float64), PROFILE_AGE_MS)
    outcome.sums["profile_age_ms"] = int(ages.sum())
    # from the first arrival on: bins narrower than the precision of a large timestamp are refused
    first = batch["arrival"].min()
    arrived, edges = np.histogram(batch["arrival"] - first, bins=ARRIVAL_BINS)
    outcome.arrivals = [(arrived, edges + first)]


def _split(partitions: NDArray[np.int32], cards: NDArray[np.int32], known: int) -> int:
    """How many transactions are of cards that came in another partition, too."""
    last = np.empty(known, dtype=np.int32)  # only what the batch's cards need is touched
    last[cards] = partitions
    return int((last[cards] != partitions).sum())

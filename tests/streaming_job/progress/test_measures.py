"""Counts and times of decided transactions are the same in any batches."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from feature_store.layout import BEGINNING, TRANSACTION
from streaming_job.decide.decider import Decisions
from streaming_job.progress.measures import keep, measure
from streaming_job.progress.outcome import LATENESS_MS, PROFILE_AGE_MS, Outcome, histogram

pytestmark = pytest.mark.unit

NOW = 1_780_000_000_000
STATE: Any = SimpleNamespace(
    profiles=np.array([(BEGINNING,), (NOW - 90_000,), (NOW + 50,)], dtype=[("arrival", "<i8")])
)


def transactions(n: int, seed: int = 1) -> tuple[np.ndarray, Decisions]:
    """Transactions of three partitions, some late, some repeated, with all kinds of profiles."""
    random = np.random.default_rng(seed)
    batch = np.zeros(n, dtype=TRANSACTION)
    batch["partition"] = np.sort(random.integers(0, 3, n))
    batch["arrival"] = NOW + random.integers(0, 1_000, n)
    batch["time"] = batch["arrival"] - random.choice([-50, 0, 90, 100, 5_000, 10**8, 10**9], n)
    return batch, Decisions(
        accepted=random.random(n) < 0.9,
        alerted=np.zeros(n, dtype=np.bool_),
        suppressed=np.zeros(n, dtype=np.bool_),
        conflicting=random.random(n) < 0.1,
        late=random.random(n) < 0.2,
        version=random.integers(-1, 3, n).astype(np.int32),
    )


def measured(batch: np.ndarray, decided: Decisions, cuts: list[int]) -> Outcome:
    outcome = Outcome()
    for start, end in zip([0, *cuts], [*cuts, batch.size], strict=True):
        rows = slice(start, end)
        part = Decisions(
            decided.accepted[rows], decided.alerted[rows], decided.suppressed[rows],
            decided.conflicting[rows], decided.late[rows], decided.version[rows],
        )  # fmt: skip
        keep(outcome, batch[rows], part, STATE)
        if start % 3 == 0:  # some of them together with the next ones
            measure(outcome)
    measure(outcome)
    return outcome


@pytest.mark.parametrize("cuts", [[], [0, 150], [1, 2, 40, 40, 199], list(range(1, 200))])
def test_counts_equal_a_plain_loop_in_any_batches(cuts: list[int]) -> None:
    batch, decided = transactions(200)
    outcome = measured(batch, decided, cuts)
    ages: list[int] = []
    counts, sums = Counter[str](conflicting_repetition=decided.conflicting.sum()), Counter[str]()
    for row, accepted, late, version in zip(
        batch, decided.accepted, decided.late, decided.version, strict=True
    ):
        counts["transactions" if accepted else "duplicates"] += 1
        counts["late"] += bool(accepted and late)
        counts["missing_profile"] += bool(accepted and version < 0)
        sums["lateness_ms"] += max(0, int(row["arrival"] - row["time"]))
        if accepted and version > 0:  # version 0 is known from the beginning
            ages.append(max(0, int(row["arrival"] - STATE.profiles["arrival"][version])))
    sums["profile_age_ms"] = sum(ages)
    assert (outcome.counts, outcome.sums) == (counts, sums)
    assert outcome.profile_ages.tolist() == histogram(np.array(ages), PROFILE_AGE_MS).tolist()
    lateness = batch["arrival"] - batch["time"]
    assert outcome.lateness.tolist() == histogram(lateness, LATENESS_MS).tolist()
    assert outcome.arrivals.tolist() == batch["arrival"].tolist()
    assert sorted(outcome.partitions) == [0, 1, 2]
    for partition, seen in outcome.partitions.items():
        mine = batch["partition"] == partition
        assert (seen.max_event_time, seen.max_arrival) == (
            batch["time"][mine].max(), batch["arrival"][mine].max()
        )  # fmt: skip
        assert seen.lateness.tolist() == histogram(lateness[mine], LATENESS_MS).tolist()


def test_an_empty_batch_changes_no_count() -> None:
    outcome = Outcome()
    batch, decided = transactions(0)
    keep(outcome, batch, decided, STATE)
    measure(outcome)
    assert not outcome.counts
    assert not outcome.partitions
    assert not outcome.arrivals.size

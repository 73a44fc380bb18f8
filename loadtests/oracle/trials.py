"""What a trial counts: the champion's verdicts and a challenger's on the same transactions, and by unit.

A unit (a card's clock hour of arrival, a card) is counted once, by which of the two alerted in it at all.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from loadtests.oracle.card import HOUR_MS

BOTH, ONLY_CHAMPION, ONLY_CHALLENGER = "both", "only_champion", "only_challenger"
BOUNDS = tuple(step / 20 for step in range(1, 21))
"""Upper bounds of the histograms of scores."""

HOURS_OPEN = 2
"""Clock hours of a partition that still count alerts; what arrives further behind counts for its card."""

Pair = tuple[str, str]
"""(rollout_id, name of a challenger)."""
Run = tuple[int, int]
"""(partition, number): transactions of a partition under the same trial, one after another."""


class Said(NamedTuple):
    """What one of a plan's models and policies says of a transaction."""

    score: float | None
    """None where the model failed."""
    alerts: bool
    decides: bool = False


def side(champion: bool, challenger: bool) -> str | None:
    """Which of the two alerted; None: neither."""
    if champion and challenger:
        return BOTH
    return ONLY_CHAMPION if champion else ONLY_CHALLENGER if challenger else None


class Trials:
    """Counts by rollout and challenger, with names as progress has them, joined by dots."""

    def __init__(self) -> None:
        self._counts: dict[Pair, Counter[str]] = defaultdict(Counter)
        self._alerted: dict[tuple[Pair, str, Run, str, int], tuple[bool, bool]] = {}
        """Whether champion and challenger have alerted in (card, hour); hour -1: in the card."""
        self._runs: dict[int, tuple[int, str | None]] = {}
        """By partition: number and rollout_id of its newest run."""
        self._newest: dict[Run, int] = {}
        """Clock hour of the newest arrival on which somebody alerted."""

    def follow(self, partition: int, rollout_id: str | None) -> Run:
        """The run of a partition's next transaction, which is under a trial or (None) under none.

        A partition that leaves a trial and comes back to it counts its units anew.
        """
        number, before = self._runs.get(partition, (0, None))
        if before != rollout_id:
            number += 1
            self._runs[partition] = number, rollout_id
        return partition, number

    def add(
        self,
        run: Run,
        rollout_id: str,
        card_id: str,
        arrival: int,
        champion: Said,
        challengers: Mapping[str, Said],
    ) -> None:
        """Take in a transaction; arrival in ms, challengers by name."""
        hour = arrival // HOUR_MS
        if champion.alerts or any(one.alerts for one in challengers.values()):
            self._newest[run] = max(self._newest.get(run, 0), hour)
        is_open = hour > self._newest.get(run, 0) - HOURS_OPEN
        for name, one in challengers.items():
            pair = rollout_id, name
            counts = self._counts[pair]
            counts.update(transactions=1, rows=1, decided=one.decides, failures=one.score is None)
            for histogram, score in (("scores", one.score), ("champion_scores", champion.score)):
                if score is not None:
                    counts[f"{histogram}.{bisect_left(BOUNDS, score)}"] += 1
            found = side(champion.alerts, one.alerts)
            if found is None:
                continue
            counts[found] += 1
            for unit in [("cards", -1), ("card_hours", hour)][: 1 + is_open]:
                key = pair, unit[0], run, card_id, unit[1]
                before = self._alerted.get(key, (False, False))
                self._alerted[key] = before[0] or champion.alerts, before[1] or one.alerts

    def counts(self) -> dict[Pair, Counter[str]]:
        """All so far."""
        found = {pair: Counter(counts) for pair, counts in self._counts.items()}
        for (pair, name, *_), (champion, challenger) in self._alerted.items():
            found[pair][f"{name}.{side(champion, challenger)}"] += 1
        return {pair: +counts for pair, counts in found.items()}

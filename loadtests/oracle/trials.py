"""Trial counts: verdicts of champion and challenger by transaction and by unit.

A unit (a card-hour or a card) is counted once, as `both`, `only_champion` or `only_challenger`: by which of
the two models alerted in it.
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
"""Number of clock hours, up to the newest with an alert in the run (see `Run`), whose alerts count for
card-hours; alerts of older hours count only for their card."""

Pair = tuple[str, str]
"""(rollout_id, name of a challenger)."""
Run = tuple[int, int]
"""(partition, number): consecutive transactions of a partition under the same trial."""


class Vote(NamedTuple):
    """The part of a verdict that trials count."""

    score: float | None
    """None if the model failed."""
    alerts: bool
    decides: bool = False


def side(champion: bool, challenger: bool) -> str | None:
    """Return which of the two alerted; None if neither did."""
    if champion and challenger:
        return BOTH
    return ONLY_CHAMPION if champion else ONLY_CHALLENGER if challenger else None


class Trials:
    """Counts by rollout and challenger, named as in progress records, with nested names joined by dots."""

    def __init__(self) -> None:
        self._counts: dict[Pair, Counter[str]] = defaultdict(Counter)
        self._alerted: dict[tuple[Pair, str, Run, str, int], tuple[bool, bool]] = {}
        """Whether champion and challenger have alerted in a card-hour; hour -1: for the card as a whole."""
        self._runs: dict[int, tuple[int, str | None]] = {}
        """Number and rollout_id of the newest run, by partition."""
        self._newest: dict[Run, int] = {}
        """Clock hour of the newest arrival with any alert, by run."""

    def follow(self, partition: int, rollout_id: str | None) -> Run:
        """Return the run of a partition's next transaction; `rollout_id` is None without a trial.

        A partition that leaves a trial and comes back to it starts a new run, whose units are counted again.
        """
        number, current = self._runs.get(partition, (0, None))
        if current != rollout_id:
            number += 1
            self._runs[partition] = number, rollout_id
        return partition, number

    def move(self) -> None:
        """Begin a new run in every partition, because other cards are in it from now on."""
        self._runs = {partition: (number, None) for partition, (number, _) in self._runs.items()}

    def add(
        self,
        run: Run,
        rollout_id: str,
        card_id: str,
        arrival: int,
        champion: Vote,
        challengers: Mapping[str, Vote],
    ) -> None:
        """Count a transaction; arrival in ms, challengers by name."""
        hour = arrival // HOUR_MS
        if champion.alerts or any(vote.alerts for vote in challengers.values()):
            self._newest[run] = max(self._newest.get(run, 0), hour)
        is_open = hour > self._newest.get(run, 0) - HOURS_OPEN
        for name, vote in challengers.items():
            pair = rollout_id, name
            counts = self._counts[pair]
            counts.update(transactions=1, rows=1, decided=vote.decides, failures=vote.score is None)
            for histogram, score in (("scores", vote.score), ("champion_scores", champion.score)):
                if score is not None:
                    counts[f"{histogram}.{bisect_left(BOUNDS, score)}"] += 1
            alerted = side(champion.alerts, vote.alerts)
            if alerted is None:
                continue
            counts[alerted] += 1
            for unit in [("cards", -1), ("card_hours", hour)][: 1 + is_open]:
                key = pair, unit[0], run, card_id, unit[1]
                previous = self._alerted.get(key, (False, False))
                self._alerted[key] = previous[0] or champion.alerts, previous[1] or vote.alerts

    def counts(self) -> dict[Pair, Counter[str]]:
        """Return all counts so far."""
        counts_of = {pair: Counter(counts) for pair, counts in self._counts.items()}
        for (pair, name, *_), (champion, challenger) in self._alerted.items():
            counts_of[pair][f"{name}.{side(champion, challenger)}"] += 1
        return {pair: +counts for pair, counts in counts_of.items()}

"""Audits what progress says of trials: each record's totals, and all counts against the oracle's."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from loadtests.oracle import Pair

TrialCounts = Mapping[Pair, Counter[str]]
"""By rollout and challenger: counts by name, the names of inner objects after a dot."""
PLAIN = ("transactions", "rows", "decided", "failures", "both", "only_champion", "only_challenger")
UNITS = ("card_hours", "cards")
HISTOGRAMS = ("scores", "champion_scores")


class Told(NamedTuple):
    """What one progress record says of trials."""

    name: str
    """Of its commit."""
    is_first: bool
    """Whether it is its group's first."""
    since: int
    """Where its running totals begin, ms."""
    counts: TrialCounts
    totals: TrialCounts
    """Finished trials leave them after a while."""


def told_trials(trials: Mapping[str, Any]) -> dict[Pair, Counter[str]]:
    """`trials` of a progress record, without what only a clock can tell.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: these are no trials.
    """
    return {
        (rollout_id, name): _flat(counts)
        for rollout_id, trial in trials.items()
        for name, counts in trial["challengers"].items()
    }


def _flat(told: Mapping[str, Any]) -> Counter[str]:
    found = Counter({name: int(told[name]) for name in PLAIN})
    for name in UNITS:
        found.update({f"{name}.{side}": int(count) for side, count in told[name].items()})
    for name in HISTOGRAMS:
        found.update({f"{name}.{at}": int(count) for at, count in enumerate(told[name]["counts"])})
    return _without_zeros(found)


def nested(trials: TrialCounts) -> dict[str, Any]:
    """Counts as JSON: by rollout and challenger, without histograms."""
    found: dict[str, Any] = {}
    for (rollout_id, name), counts in sorted(trials.items()):
        units = {
            unit: {side: counts[f"{unit}.{side}"] for side in ("both", "only_champion", "only_challenger")}
            for unit in UNITS
        }
        found.setdefault(rollout_id, {})[name] = {plain: counts[plain] for plain in PLAIN} | units
    return found


class TrialAudit:
    """Collects what progress says of trials, then compares; units may leave only_... for both."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._sums: dict[Pair, Counter[str]] = {}

    def check_group(self, commits: Iterable[Told]) -> None:
        """Each record's totals are those of the record before it and its own counts.

        Args:
            commits: of one key group, in their order.
        """
        before: Told | None = None
        for now in commits:
            for pair, counts in now.counts.items():
                self._sums[pair] = _sum(self._sums.get(pair), counts)
            if now.is_first or (before is not None and before.since == now.since):
                known = {} if before is None else before.totals
                if any(
                    _sum(known.get(pair), now.counts.get(pair)) != now.totals.get(pair)
                    for pair in {*now.counts, *now.totals}
                ):
                    self._problems.append(
                        f"{now.name}: the totals of trials are not those before it and its own counts"
                    )
            before = now

    def check_totals(self, expected: TrialCounts) -> None:
        """Compare the sums of all commits with the oracle's counts."""
        for pair in sorted({*self._sums, *expected}):
            rollout_id, challenger = pair
            told, right = (found.get(pair, Counter()) for found in (self._sums, expected))
            for name in sorted({*told, *right}):
                if told[name] != right[name]:
                    self._problems.append(
                        f"progress adds up to {told[name]} {name} of {challenger} in rollout {rollout_id}, "
                        f"the oracle finds {right[name]}"
                    )


def _sum(one: Counter[str] | None, other: Counter[str] | None) -> Counter[str]:
    found = Counter(one)
    found.update(other or {})
    return _without_zeros(found)


def _without_zeros(counts: Counter[str]) -> Counter[str]:
    """Without what is zero; negative counts stay, which + would drop."""
    return Counter({name: count for name, count in counts.items() if count})

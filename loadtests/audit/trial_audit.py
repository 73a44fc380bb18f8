"""Audit of the trial counts in progress records: checks running totals, and compares sums with the oracle."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from loadtests.oracle import Pair

TrialCounts = Mapping[Pair, Counter[str]]
"""Counts by rollout and challenger; names of nested counts are joined by dots."""
PLAIN = ("transactions", "rows", "decided", "failures", "both", "only_champion", "only_challenger")
UNITS = ("card_hours", "cards")
HISTOGRAMS = ("scores", "champion_scores")


class CommitTrials(NamedTuple):
    """Trial counts of one commit, from its progress record."""

    name: str
    """Name of the commit."""
    is_first: bool
    """Whether it is the key group's first commit."""
    since: int
    """Time at which the running totals begin, ms."""
    counts: TrialCounts
    totals: TrialCounts
    """Running totals of the newest rollouts; those of older rollouts are dropped."""


def trial_counts(trials: Mapping[str, Any]) -> dict[Pair, Counter[str]]:
    """Return the counts of `trials` in a progress record, without fields that depend on the clock."""
    return {
        (rollout_id, name): challenger_counts(counts)
        for rollout_id, trial in trials.items()
        for name, counts in trial["challengers"].items()
    }


def challenger_counts(counts: Mapping[str, Any]) -> Counter[str]:
    """Return the counts of one challenger, see `trial_counts`."""
    flat = Counter({name: int(counts[name]) for name in PLAIN})
    for name in UNITS:
        flat.update({f"{name}.{side}": int(count) for side, count in counts[name].items()})
    for name in HISTOGRAMS:
        flat.update({f"{name}.{at}": int(count) for at, count in enumerate(counts[name]["counts"])})
    return _without_zeros(flat)


def nested(trials: TrialCounts) -> dict[str, Any]:
    """Return counts as JSON: by rollout and challenger, without histograms."""
    result: dict[str, Any] = {}
    for (rollout_id, name), counts in sorted(trials.items()):
        units = {
            unit: {side: counts[f"{unit}.{side}"] for side in ("both", "only_champion", "only_challenger")}
            for unit in UNITS
        }
        result.setdefault(rollout_id, {})[name] = {plain: counts[plain] for plain in PLAIN} | units
    return result


class TrialAudit:
    """Collects trial counts of progress records, then compares them.

    A card or card-hour counted as `only_champion` or `only_challenger` may become `both` in a later commit,
    which then counts it with -1 under the earlier name.
    """

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._sums: dict[Pair, Counter[str]] = {}

    def check_group(self, commits: Iterable[CommitTrials]) -> None:
        """Check that each record's totals are the previous record's plus its own counts.

        Not checked: a record with which the totals began anew, and the first record, unless its commit is
        the key group's first.

        A trial that is not in a record's totals keeps those that it had before, should it return.

        Args:
            commits: the commits of one key group, in their order.
        """
        previous: CommitTrials | None = None
        totals: dict[Pair, Counter[str]] = {}
        for current in commits:
            for pair, counts in current.counts.items():
                self._sums[pair] = _sum(self._sums.get(pair), counts)
            if current.is_first or (previous is not None and previous.since == current.since):
                if any(
                    _sum(totals.get(pair), current.counts.get(pair)) != current.totals.get(pair)
                    for pair in {*current.counts, *current.totals}
                ):
                    self._problems.append(
                        f"{current.name}: the totals of trials are not the previous ones plus its own counts"
                    )
            else:
                totals.clear()
            totals.update(current.totals)
            previous = current

    def check_totals(self, expected: TrialCounts) -> None:
        """Compare the sums of all commits with the oracle's counts."""
        for pair in sorted({*self._sums, *expected}):
            rollout_id, challenger = pair
            counted, right = (counts.get(pair, Counter()) for counts in (self._sums, expected))
            for name in sorted({*counted, *right}):
                if counted[name] != right[name]:
                    self._problems.append(
                        f"progress adds up to {counted[name]} {name} of {challenger} in rollout "
                        f"{rollout_id}, the oracle finds {right[name]}"
                    )


def _sum(counts: Counter[str] | None, other: Counter[str] | None) -> Counter[str]:
    result = Counter(counts)
    result.update(other or {})
    return _without_zeros(result)


def _without_zeros(counts: Counter[str]) -> Counter[str]:
    """Drop zero counts; negative ones stay, unlike with unary plus."""
    return Counter({name: count for name, count in counts.items() if count})

"""Population stability index of two score histograms, or of counts in common bins."""

import math
from collections.abc import Sequence

from models.score_histogram import ScoreHistogram

FEWEST_BINS = 5
"""Minimum of common bins: with fewer the index means nothing."""
PRIOR = 0.5
"""Count added to each bin, so that an empty bin does not make the index infinite."""
_SAME = 9
"""Decimals to which bounds are compared: 0.15 and 3 * 0.05 are the same bound."""


def index(new: ScoreHistogram, old: ScoreHistogram) -> float | None:
    """Compute the population stability index: the sum of (p - q) ln(p / q) over the bins.

    p and q are a bin's shares in the two histograms, after PRIOR is added to each count; equal shares give 0.
    Bins end at the bounds that both histograms have; bins that are empty in both are left out. A common
    reading: below 0.1 stable, above 0.25 another population. The index is symmetric in its arguments. For n
    and m scores of one distribution in b bins, the expected index is about (b - 1) (1/n + 1/m).

    Returns:
        At least 0, finite; None if a histogram is empty, or with fewer than FEWEST_BINS common bins.
    """
    common = {round(bound, _SAME) for bound in new.le} & {round(bound, _SAME) for bound in old.le}
    if not (new.total and old.total) or len(common) + 1 < FEWEST_BINS:
        return None
    return of_counts(_merged(new, common), _merged(old, common))


def of_counts(new: Sequence[int], old: Sequence[int]) -> float:
    """Compute the population stability index of counts in common bins; bins empty in both are left out.

    Args:
        new: count of each bin, not all 0.
        old: count of each bin, not all 0.
    """
    pairs = [(p, q) for p, q in zip(new, old, strict=True) if p or q]
    all_p = sum(p for p, _ in pairs) + PRIOR * len(pairs)
    all_q = sum(q for _, q in pairs) + PRIOR * len(pairs)
    shares = [((p + PRIOR) / all_p, (q + PRIOR) / all_q) for p, q in pairs]
    return math.fsum((p - q) * math.log(p / q) for p, q in shares)


def _merged(histogram: ScoreHistogram, bounds: set[float]) -> list[int]:
    """Merge bins so that they end at `bounds`, a subset of the histogram's bounds; the last bin is open."""
    merged, running = [], 0
    for bound, count in zip(histogram.le, histogram.counts, strict=False):
        running += count
        if round(bound, _SAME) in bounds:
            merged.append(running)
            running = 0
    return [*merged, running + histogram.counts[-1]]

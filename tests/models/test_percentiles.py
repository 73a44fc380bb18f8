"""The percentile of a score is the share of scores that are no higher."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.percentiles import LEVELS, percentile, quantiles

pytestmark = pytest.mark.unit

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=300)


@given(SCORES, st.floats(0, 1))
def test_a_percentile_is_the_share_of_scores_that_are_no_higher(scores: list[float], score: float) -> None:
    least = quantiles(np.array(scores))
    result = percentile(least, score)
    reached = 100 * float(np.mean(np.array(scores) <= score))
    assert result <= reached + 1e-9
    higher = LEVELS[result < LEVELS]
    # `quantiles` rounds each level up to a score; so the next level may be below `reached`, but by less than
    # the share of one score, 100 / len(scores)
    assert not higher.size or higher[0] > reached - 100 / len(scores) - 1e-9


def test_levels_are_finer_where_alerts_are() -> None:
    assert (np.diff(LEVELS) > 0).all()
    assert LEVELS[-1] == 100
    assert set(range(1, 100)) <= set(LEVELS.tolist())
    least = quantiles(np.arange(100_000) / 100_000)
    assert percentile(least, 0.99995) == 99.995
    assert percentile(least, 0.5) == 50
    assert percentile(least, 0.0) == 0

"""Counts in bins of features equal those by plain comparison; the bins are stored in a model's files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from models import artifact
from models.errors import ModelError
from models.feature_bins import ALIKE, LEVELS, SAMPLED, FeatureBins, bins_of
from models.trees import compile_trees

pytestmark = pytest.mark.unit

VALUES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 2.0, np.nan, np.inf, -np.inf]),
    st.floats(-1e6, 1e6, allow_subnormal=False),
)
COLUMN = st.lists(VALUES, min_size=1, max_size=60)


def naive(bins: FeatureBins, x: np.ndarray) -> np.ndarray:
    """Count all rows in the bins of each feature, value by value."""
    counts = np.zeros_like(bins.trained)
    for feature, column in enumerate(bins.columns.tolist()):
        for value in x[:, column].tolist():
            if value != value:
                counts[feature, -1] += 1
            else:
                counts[feature, sum(value > bound for bound in bins.upper[:, feature].tolist())] += 1
    return counts


@given(COLUMN, COLUMN)
def test_each_value_is_counted_in_the_bin_of_its_bounds(trained: list[float], later: list[float]) -> None:
    bins = bins_of(np.array(trained)[:, None])
    assert np.array_equal(bins.trained, naive(bins, np.array(trained)[:, None]))
    assert bins.trained.sum() == len(trained)
    x, counts = np.array(later)[:, None], np.zeros_like(bins.trained)
    bins.add(x, np.zeros(len(x), dtype=np.uint64), counts)
    assert np.array_equal(counts, naive(bins, x))


def test_one_transaction_in_eight_is_counted_by_its_hash_alone() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4_000, 3))
    bins = bins_of(x)
    hashes = rng.integers(0, 2**48, len(x)).astype(np.uint64)
    whole, parts = np.zeros_like(bins.trained), np.zeros_like(bins.trained)
    bins.add(x, hashes, whole)
    for cut in np.array_split(np.arange(len(x)), 37):
        bins.add(np.ascontiguousarray(x[cut]), hashes[cut], parts)
    assert np.array_equal(whole, parts)
    assert np.array_equal(whole, naive(bins, x[hashes % SAMPLED == 0]))
    assert (whole.sum(axis=1) == np.sum(hashes % SAMPLED == 0)).all()


def test_bins_of_a_continuous_feature_hold_equal_shares() -> None:
    trained = bins_of(np.random.default_rng(1).normal(size=(10_000, 1))).trained[0]
    assert (np.abs(trained[: len(LEVELS) + 1] - 1_000) <= 1).all()
    assert trained[-1] == 0


@pytest.mark.parametrize("usual", [0.0, 1.0, -250.0, 1e9])
def test_a_value_that_is_nearly_always_the_same_has_a_bin_of_its_own(usual: float) -> None:
    bins = bins_of(np.repeat([usual - 1, usual, usual + 1], [50, 900, 50])[:, None])
    assert bins.trained[0, :3].tolist() == [50, 900, 50]
    counts = np.zeros_like(bins.trained)
    others = np.array([usual - 1, usual, usual + 1, np.nan])[:, None]
    bins.add(others, np.zeros(4, dtype=np.uint64), counts)
    assert counts[0, :3].tolist() == [1, 1, 1]
    assert counts[0, -1] == 1
    assert ALIKE < 1e-6


def test_rows_in_another_column_order_are_counted_by_feature() -> None:
    x = np.random.default_rng(2).normal(size=(500, 2))
    bins = bins_of(x)
    wider = np.ascontiguousarray(np.column_stack([np.full(500, 9.0), x[:, 1], x[:, 0]]))
    counts = np.zeros_like(bins.trained)
    bins.on([2, 1]).add(wider, np.zeros(500, dtype=np.uint64), counts)
    assert np.array_equal(counts, bins.trained)
    with pytest.raises(ModelError, match="register it again"):
        bins.on([2, 3]).add(wider, np.zeros(500, dtype=np.uint64), counts)


@pytest.mark.parametrize(
    "spoiled",
    [
        {"upper": np.zeros((2, 2), dtype=np.float32)},
        {"upper": np.array([[1.0, 1.0], [0.0, 1.0]])},
        {"upper": np.full((2, 2), np.nan)},
        {"upper": np.zeros((17, 2)), "trained": np.zeros((2, 19), dtype=np.int64)},
        {"trained": np.full((2, 4), -1)},
        {"trained": np.zeros((2, 5), dtype=np.int64)},
        {"columns": np.array([0, -1])},
        {"columns": np.array([0])},
    ],
    ids=str,
)
def test_arrays_that_would_index_out_of_bounds_are_refused(spoiled: dict[str, np.ndarray]) -> None:
    good = {
        "upper": np.zeros((2, 2)), "trained": np.ones((2, 4), dtype=np.int64), "columns": np.arange(2),
    }  # fmt: skip
    assert FeatureBins(**good)
    with pytest.raises(ModelError, match="bins are invalid"):
        FeatureBins(**{**good, **spoiled})


@pytest.fixture
def model() -> tuple[HistGradientBoostingClassifier, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(500, 2))
    return HistGradientBoostingClassifier(max_iter=3).fit(x, x[:, 0] > 0), x


def test_bins_come_back_with_the_model_and_a_model_without_them_loads(
    model: tuple[HistGradientBoostingClassifier, np.ndarray], tmp_path: Path
) -> None:
    estimator, x = model
    for name, bins in (("with", bins_of(x)), ("without", None)):
        directory = tmp_path / name / artifact.EXTRA
        directory.mkdir(parents=True)
        artifact.write(directory, estimator, ("a:1", "b:1"), x[:5], np.zeros(2), bins=bins)
        content = artifact.read(tmp_path / name)
        assert (content.bins is None) == (bins is None)
        if bins is not None and content.bins is not None:
            for field in ("upper", "trained", "columns"):
                assert np.array_equal(getattr(content.bins, field), getattr(bins, field))


def test_bins_of_other_features_than_the_models_are_refused(
    model: tuple[HistGradientBoostingClassifier, np.ndarray],
) -> None:
    estimator, x = model
    trees = compile_trees(estimator)
    with pytest.raises(ModelError, match="do not match"):
        artifact.Content(("a:1", "b:1"), trees, x[:5], trees.score(x[:5]), bins=bins_of(x[:, :1]))

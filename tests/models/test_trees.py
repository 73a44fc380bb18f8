"""Compiled trees equal scikit-learn, and explanations equal a walk in plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from models.errors import ModelError
from models.leaf_bits import leaf_bits
from models.trees import Trees, can_compile, compile_trees

pytestmark = pytest.mark.unit


def history(seed: int = 0, rows: int = 4_000, width: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Random rows with missing values that matter: column 1 is missing more often for frauds."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width))
    x[:, 3] = np.round(x[:, 3])  # ties
    y = x[:, 0] + np.abs(x[:, 2]) + rng.normal(size=rows) > 2.2
    x[rng.random(rows) < np.where(y, 0.6, 0.1), 1] = np.nan
    x[rng.random(x.shape) < 0.05] = np.nan
    return x, y.astype(int)


def fitted(leaves: int = 31, iterations: int = 40, seed: int = 0) -> HistGradientBoostingClassifier:
    x, y = history(seed)
    model = HistGradientBoostingClassifier(
        max_iter=iterations, max_leaf_nodes=leaves, early_stopping=False, random_state=0
    )
    return model.fit(x, y)


@pytest.fixture(scope="module", params=[6, 31, 64, 65], ids="{} leaves".format)
def pair(request: pytest.FixtureRequest) -> tuple[HistGradientBoostingClassifier, Trees]:
    """Models scored with masks of each width, and one (65 leaves) whose trees are walked."""
    model = fitted(request.param)
    return model, compile_trees(model)


@pytest.mark.parametrize("leaves", [2, 8, 9, 32, 33, 64, 65, 200])
def test_log_odds_equal_scikit_learn_to_the_last_bit(leaves: int) -> None:
    model = fitted(leaves)
    x, _ = history(seed=1, rows=1_000)
    compiled = compile_trees(model)
    assert np.array_equal(compiled.log_odds(x), model._raw_predict(x)[:, 0])
    np.testing.assert_allclose(compiled.score(x), model.predict_proba(x)[:, 1], rtol=0, atol=6e-10)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]))
def test_missing_infinite_and_boundary_values_take_scikit_learns_branch(
    pair: tuple[HistGradientBoostingClassifier, Trees], seed: int, missing: float
) -> None:
    model, compiled = pair
    rng = np.random.default_rng(seed)
    thresholds = np.concatenate([tree[0].nodes["num_threshold"] for tree in model._predictors])
    odd = np.concatenate([thresholds, np.nextafter(thresholds, np.inf), [np.inf, -np.inf, 0.0, -0.0, 1e308]])
    x = rng.choice(odd, size=(65, 9))
    x[rng.random(x.shape) < missing] = np.nan
    assert np.array_equal(compiled.log_odds(x), model._raw_predict(x)[:, 0])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 700), max_size=6))
def test_a_row_has_the_same_score_in_any_batch(
    pair: tuple[HistGradientBoostingClassifier, Trees], cuts: list[int]
) -> None:
    x, _ = history(seed=2, rows=700)
    _, compiled = pair
    parts = np.split(x, sorted(cuts))
    assert np.array_equal(np.concatenate([compiled.score(part) for part in parts]), compiled.score(x))


@pytest.mark.parametrize(
    ("leaves", "mask"), [(8, np.uint8), (9, np.uint32), (33, np.uint64), (64, np.uint64), (65, None)]
)
def test_masks_are_as_narrow_as_the_largest_tree_allows(leaves: int, mask: type | None) -> None:
    trees = compile_trees(fitted(leaves))
    bits = leaf_bits(trees.nodes, trees.values, trees.roots, int(trees.width[0]))
    assert (None if bits is None else bits.keeps.dtype) == mask
    assert bits is None or bits.leaves.shape[1] == leaves


def test_an_empty_batch_has_no_scores(pair: tuple[HistGradientBoostingClassifier, Trees]) -> None:
    assert pair[1].score(np.empty((0, 9))).shape == (0,)
    assert pair[1].explain(np.empty((0, 9))).shape == (0, 9)


def test_a_read_only_batch_is_scored_by_the_same_kernel(
    pair: tuple[HistGradientBoostingClassifier, Trees],
) -> None:
    x, _ = history(seed=3, rows=100)
    expected = pair[1].score(x)
    x.flags.writeable = False
    assert np.array_equal(pair[1].score(x), expected)


def naive_explanation(model: HistGradientBoostingClassifier, row: np.ndarray) -> np.ndarray:
    """Contributions by a walk over scikit-learn's nodes.

    A step from a node to its child adds the difference of their means to the column that the node tests. The
    mean of a node is the mean output of the training rows that reached it.
    """
    out = np.zeros(len(row))

    def mean(nodes: np.ndarray, at: int) -> float:
        if nodes["is_leaf"][at]:
            return float(nodes["value"][at])
        children = int(nodes["left"][at]), int(nodes["right"][at])
        counts = [int(nodes["count"][child]) for child in children]
        return sum(mean(nodes, child) * count for child, count in zip(children, counts, strict=True)) / sum(
            counts
        )

    for iteration in model._predictors:
        nodes, at = iteration[0].nodes, 0
        while not nodes["is_leaf"][at]:
            column = int(nodes["feature_idx"][at])
            value = row[column]
            left = (
                bool(nodes["missing_go_to_left"][at])
                if np.isnan(value)
                else value <= nodes["num_threshold"][at]
            )
            child = int(nodes["left"][at] if left else nodes["right"][at])
            out[column] += mean(nodes, child) - mean(nodes, at)
            at = child
    return out


def test_explanations_equal_the_naive_walk_and_add_up(
    pair: tuple[HistGradientBoostingClassifier, Trees],
) -> None:
    model, compiled = pair
    x, _ = history(seed=4, rows=20)
    x[0, :3] = np.inf, -np.inf, np.nan
    explained = compiled.explain(x)
    np.testing.assert_allclose(explained, [naive_explanation(model, row) for row in x], rtol=0, atol=6e-10)
    base = compiled.baseline[0] + compiled.means[compiled.roots].sum()
    np.testing.assert_allclose(base + explained.sum(axis=1), compiled.log_odds(x), rtol=0, atol=1e-8)


def test_the_feature_that_makes_the_fraud_is_named_first(
    pair: tuple[HistGradientBoostingClassifier, Trees],
) -> None:
    x = np.zeros((1, 9))
    x[0, 0] = 4.0
    assert int(np.argmax(pair[1].explain(x)[0])) == 0


def test_trees_are_read_back_from_their_arrays(pair: tuple[HistGradientBoostingClassifier, Trees]) -> None:
    x, _ = history(seed=5, rows=50)
    again = Trees(**pair[1].arrays())
    assert np.array_equal(again.score(x), pair[1].score(x))


def test_models_that_cannot_be_compiled_are_refused() -> None:
    x, y = history(rows=500)
    categories = np.column_stack([x, np.arange(len(x)) % 3])
    model = HistGradientBoostingClassifier(max_iter=3, categorical_features=[9]).fit(categories, y)
    assert not can_compile(model)
    assert not can_compile(HistGradientBoostingClassifier(max_iter=3).fit(x, np.arange(len(x)) % 3))
    with pytest.raises(ModelError, match="predict_proba"):
        compile_trees(model)

"""Untrusted arrays of trees are refused, or walked within their bounds."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from models import tree_layout, trees
from models.errors import ModelError
from models.leaf_bits import LARGEST
from models.rounding import rounded
from models.trees import Trees, compile_trees

pytestmark = pytest.mark.unit

WIDTH = 5
Arrays = dict[str, np.ndarray]


def rows(count: int = 70) -> np.ndarray:
    """Random rows, some values missing or infinite."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, WIDTH))
    x[rng.random(x.shape) < 0.2] = np.nan
    x[rng.random(x.shape) < 0.05] = np.inf
    x[rng.random(x.shape) < 0.05] = -np.inf
    return x


X = rows()


def compiled(leaves: int) -> Arrays:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1_500, WIDTH))
    y = x[:, 0] + np.abs(x[:, 2]) > 1.5
    x[rng.random(x.shape) < np.where(y, 0.4, 0.1)[:, None]] = np.nan
    model = HistGradientBoostingClassifier(
        max_iter=3, max_leaf_nodes=leaves, min_samples_leaf=2, early_stopping=False, random_state=0
    )
    return compile_trees(model.fit(x, y)).arrays()


WHOLE = {leaves: compiled(leaves) for leaves in (2, 8, 90)}


def copy(leaves: int = 8) -> Arrays:
    return {name: array.copy() for name, array in WHOLE[leaves].items()}


def inside(at: int, size: int) -> int:
    assert 0 <= at < size
    return at


def naive(arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds and contributions of X by plain walks that check each index before its use."""
    nodes, values, means = arrays["nodes"], arrays["values"], arrays["means"]
    odds, explained = np.full(len(X), arrays["baseline"][0]), np.zeros(X.shape)
    for i, row in enumerate(X):
        for root, depth in zip(arrays["roots"].tolist(), arrays["depths"].tolist(), strict=True):
            at = inside(root, len(nodes))
            for _ in range(depth):
                threshold, asked, child = nodes[at].tolist()
                mirrored, column = divmod(inside(asked, 2 * WIDTH), WIDTH)
                value = row[column] if math.isnan(row[column]) else min(max(row[column], -LARGEST), LARGEST)
                child = inside(child + ((-value if mirrored else value) > threshold), len(nodes))
                explained[i, column] += means[child] - means[at]
                at = child
            odds[i] += values[at]
    return odds, explained


NASTY = (0, 1, -1, 2**31, 2**32 - 1, 2**63 - 1, -(2**63), WIDTH, 2 * WIDTH, 0.5, 1e308, -1e308)
NOT_FINITE = (math.nan, math.inf, -math.inf)


@st.composite
def corrupted(draw: st.DrawFn) -> Arrays:
    """Compiled trees after a few random changes of their arrays."""
    arrays = copy(draw(st.sampled_from(sorted(WHOLE))))
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(arrays)))
        array = arrays[name]
        size = len(array)
        how = draw(st.sampled_from(["bit", "number", "swap", "cut", "repeat"]))
        at = draw(st.integers(0, size - 1)) if size else 0
        if how == "bit" and size:
            raw = bytearray(array.tobytes())
            raw[draw(st.integers(0, len(raw) - 1))] ^= 1 << draw(st.integers(0, 7))
            arrays[name] = np.frombuffer(bytes(raw), array.dtype).copy()
        elif how == "number" and size:
            field = draw(st.sampled_from(array.dtype.names)) if array.dtype.names else ...
            target = array[field]
            whole = target.dtype.kind in "iu"
            near = [target[at].item() + step for step in (-2, -1, 1, 2)]
            number = draw(st.sampled_from([*near, *NASTY, *(() if whole else NOT_FINITE)]))
            changed = np.array(
                [int(number) % 2**64 if whole else float(number)], np.uint64 if whole else float
            )
            target[at] = changed.astype(target.dtype)[0]
        elif how == "swap" and size:
            other = draw(st.integers(0, size - 1))
            array[[at, other]] = array[[other, at]]
        elif how == "cut":
            arrays[name] = array[:at].copy()
        else:
            arrays[name] = np.concatenate([array, array[at : at + draw(st.integers(1, 3))]])
    return arrays


@settings(max_examples=600, deadline=None)
@given(corrupted())
def test_corrupted_trees_are_refused_or_walked_within_bounds(arrays: Arrays) -> None:
    try:
        result = Trees(**arrays)
        result.score(X)
    except ModelError:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        odds, sums = naive(arrays)
        explained, compiled = rounded(sums), result.explain(X)
    out = np.empty(len(X))
    trees._sum_leaves(
        X, result.nodes, result.values, result.roots, result.depths, float(result.baseline[0]), out
    )
    assert np.array_equal(out, odds, equal_nan=True)
    assert np.array_equal(result.log_odds(X), odds, equal_nan=True)
    assert np.array_equal(compiled, explained, equal_nan=True)


@pytest.mark.parametrize("width", [1, WIDTH - 1, WIDTH + 1])
def test_rows_of_another_width_are_refused(width: int) -> None:
    trees = Trees(**copy())
    with pytest.raises(ModelError, match=r"ask for 5 columns"):
        trees.score(np.zeros((70, width)))
    with pytest.raises(ModelError, match=r"ask for 5 columns"):
        trees.explain(np.zeros((70, width)))


@pytest.mark.parametrize("leaves", sorted(WHOLE))
def test_the_naive_walk_agrees_on_whole_trees(leaves: int) -> None:
    odds, explained = naive(WHOLE[leaves])
    trees = Trees(**WHOLE[leaves])
    assert np.array_equal(trees.log_odds(X), odds)
    assert np.array_equal(trees.explain(X), rounded(explained))


def _set(name: str, at: int, to: float, field: str | None = None) -> Callable[[Arrays], None]:
    def forge(arrays: Arrays) -> None:
        (arrays[name] if field is None else arrays[name][field])[at] = to

    return forge


def _second_parent(arrays: Arrays) -> None:
    """Make two inner nodes share their children: a graph of such nodes can have exponentially many paths."""
    nodes = arrays["nodes"]
    inner = np.flatnonzero(nodes["threshold"] < np.inf)
    nodes["child"][inner[0]] = nodes["child"][inner[1]]


def _cycle(arrays: Arrays) -> None:
    arrays["nodes"]["child"][arrays["nodes"]["child"][0]] = 0


def _leaf_elsewhere(arrays: Arrays) -> None:
    leaf = int(np.flatnonzero(arrays["nodes"]["threshold"] == np.inf)[0])
    arrays["nodes"]["child"][leaf] = leaf - 1


FORGED = {
    "a child beyond the nodes": _set("nodes", 0, 10**6, "child"),
    "a column beyond the row": _set("nodes", 0, 2 * WIDTH, "column"),
    "a leaf's column beyond the row": _set("nodes", -1, 2**32 - 1, "column"),
    "a threshold that is no number": _set("nodes", 0, math.nan, "threshold"),
    "a leaf as an inner node": _set("nodes", -1, 0.0, "threshold"),
    "an inner node as a leaf": _set("nodes", 0, math.inf, "threshold"),
    "an infinite value": _set("values", 3, math.inf),
    "a mean that is no number": _set("means", 3, math.nan),
    "an infinite baseline": _set("baseline", 0, math.inf),
    "a root beyond the nodes": _set("roots", -1, 10**6),
    "a first root that is not the first node": _set("roots", 0, 1),
    "a tree in another": lambda arrays: arrays["roots"].__setitem__(1, 0),
    "a depth that is too great": _set("depths", 0, 10),
    "a depth that is too small": _set("depths", 0, 1),
    "a negative depth": _set("depths", 0, -1),
    "a depth beyond the sum's range": _set("depths", 0, 2**63 - 1),
    "no columns": _set("width", 0, 0),
    "a negative number of columns": _set("width", 0, -5),
    "two parents": _second_parent,
    "a cycle": _cycle,
    "a leaf that leads elsewhere": _leaf_elsewhere,
    "values of another type": lambda arrays: arrays.update(values=arrays["values"].astype(np.float32)),
    "nodes of another type": lambda arrays: arrays.update(nodes=arrays["nodes"].view(np.uint64)),
    "fewer values than nodes": lambda arrays: arrays.update(values=arrays["values"][:-1]),
    "fewer means than nodes": lambda arrays: arrays.update(means=arrays["means"][:-1]),
    "fewer depths than trees": lambda arrays: arrays.update(depths=arrays["depths"][:-1]),
    "two columns of values": lambda arrays: arrays.update(values=np.zeros((len(arrays["nodes"]), 2))),
    "values with gaps": lambda arrays: arrays.update(values=np.repeat(arrays["values"], 2)[::2]),
    "trees without nodes": lambda arrays: arrays.update(nodes=arrays["nodes"][:0]),
    "nodes without trees": lambda arrays: arrays.update(
        roots=arrays["roots"][:0], depths=arrays["depths"][:0]
    ),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
def test_forged_trees_are_refused_before_a_kernel_sees_them(forge: Callable[[Arrays], None]) -> None:
    arrays = copy()
    Trees(**arrays)
    forge(arrays)
    with pytest.raises(ModelError, match=r"damaged or forged|more than"):
        Trees(**arrays)


def chain(depth: int) -> Arrays:
    """A tree in which the second child of each node is a leaf: as deep as a tree of its size can be."""
    nodes = np.zeros(2 * depth + 1, tree_layout.NODE)
    inner = np.concatenate([[0], np.arange(1, 2 * depth - 1, 2)]).astype(int)
    nodes["threshold"], nodes["child"] = np.inf, np.arange(len(nodes))
    nodes["threshold"][inner] = -np.arange(depth)
    nodes["child"][inner] = 1 + 2 * np.arange(depth)
    # the path of -inf visits only first children, one at each depth: `depth` steps
    return {
        "nodes": nodes,
        "values": np.arange(len(nodes)) / 8.0,
        "means": np.zeros(len(nodes)),
        "roots": np.zeros(1, np.uint32),
        "depths": np.array([depth]),
        "baseline": np.zeros(1),
        "width": np.array([WIDTH]),
    }


def test_a_deep_tree_is_walked() -> None:
    arrays = chain(3_000)
    x = np.array([[5.0, 0, 0, 0, 0], [-7.5, 0, 0, 0, 0], [-1e9, 0, 0, 0, 0]])
    # 5 > 0: the root's second child; -7.5 > -8: that of the node eight steps down; -1e9: the deepest first
    # child
    assert Trees(**arrays).log_odds(x).tolist() == [2 / 8, 18 / 8, (2 * 3_000 - 1) / 8]


def test_sizes_are_limited() -> None:
    with pytest.raises(
        ModelError, match=r"131,073 steps from roots to leaves, more than 131,072; train a smaller one"
    ):
        Trees(**chain(tree_layout.MOST_STEPS + 1))
    with pytest.raises(ModelError, match="nodes, more than"):
        Trees(**chain(tree_layout.MOST_NODES // 2))
    arrays = copy()
    arrays["width"][0] = tree_layout.MOST_FEATURES + 1
    with pytest.raises(ModelError, match="4,097 features, more than"):
        Trees(**arrays)
    stumps = tree_layout.MOST_TREES + 1
    nodes = np.zeros(stumps, tree_layout.NODE)
    nodes["threshold"], nodes["child"] = np.inf, np.arange(stumps)
    zeros = np.zeros(stumps)
    with pytest.raises(ModelError, match="10,001 trees, more than"):
        Trees(
            nodes, zeros, zeros, np.arange(stumps, dtype=np.uint32), zeros.astype(np.int64), np.zeros(1),
            np.array([WIDTH]),
        )  # fmt: skip

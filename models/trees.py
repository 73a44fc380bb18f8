"""Gradient-boosted trees as flat arrays, and a kernel whose log-odds equal scikit-learn's to the last bit.

scikit-learn's own prediction costs milliseconds per call and about 3 us a row. This kernel costs microseconds
per call and 0.2 us a row with 100 trees of 8 leaves, needs no threads and loads without scikit-learn. A row's
score does not depend on its batch, because each row adds the same numbers in the same order. If no tree has
more than 64 leaves, the trees are scored by bit masks of their leaves (`leaf_bits`); otherwise all trees are
walked.

Layout (`tree_layout`): the two children of a node are adjacent, so a step is `child + (x[column] >
threshold)`, without a branch. A leaf has an infinite threshold and is its own child, so all rows of a block
take as many steps as the tree is deep, and the processor overlaps the steps of different rows. NaN compares
false and takes the first child, which is the side of missing values. Where scikit-learn sends missing values
right, the children are swapped and the test uses the negated value, from a second copy of the columns: `x <=
t` equals `-x > -nextafter(t)`, and NaN again takes the first child.
"""

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numba import from_dtype, types

from feature_store.jit import njit
from models.errors import ModelError
from models.leaf_bits import LARGEST, LeafBits, leaf_bits
from models.rounding import rounded
from models.tree_layout import NODE, check

BLOCK = 64
"""Rows that walk a tree together: their values and positions stay in the L1 cache."""

# One signature each: a read-only batch (from Arrow, for example) must not make numba compile another kernel
# while the stream runs.
_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_NODES, _VALUES = from_dtype(NODE)[::1], types.float64[::1]
_ROOTS, _DEPTHS = types.uint32[::1], types.int64[::1]


@dataclass(frozen=True)
class Trees:
    """A compiled binary classifier of f features, t trees and m nodes.

    Raises:
        ModelError: the arrays break the layout (`tree_layout.check`).
    """

    nodes: np.ndarray
    """NODE[m], tree after tree, each breadth first."""
    values: np.ndarray
    """float64[m]: the node's output in log-odds; scores use only those of leaves."""
    means: np.ndarray
    """float64[m]: mean output of the training rows that reached the node, log-odds."""
    roots: np.ndarray
    """uint32[t]: each tree's first node."""
    depths: np.ndarray
    """int64[t]: steps from the root to the deepest leaf."""
    baseline: np.ndarray
    """float64[1]: log-odds before any tree."""
    width: np.ndarray
    """int64[1]: f."""

    def __post_init__(self) -> None:
        check(**self.arrays())

    def score(self, x: np.ndarray) -> np.ndarray:
        """Compute probabilities of fraud, rounded (`rounding`).

        Args:
            x: float64[n, f], C-contiguous; NaN where unknown.

        Returns:
            float64[n].
        """
        raw = self.log_odds(x)
        _to_probability(raw)
        return raw

    def log_odds(self, x: np.ndarray) -> np.ndarray:
        """Sum the trees' outputs, without the logistic function: float64[n, f] -> float64[n]."""
        self._check_width(x)
        baseline = float(self.baseline[0])
        if self._bits is not None:
            return self._bits.log_odds(x, baseline)
        out = np.empty(len(x))
        _sum_leaves(x, self.nodes, self.values, self.roots, self.depths, baseline, out)
        return out

    @cached_property
    def _bits(self) -> LeafBits | None:
        return leaf_bits(self.nodes, self.values, self.roots, int(self.width[0]))

    def _check_width(self, x: np.ndarray) -> None:
        # kernels take the width from the rows, and column numbers from the trees: they must agree
        if x.shape[1:] != (self.width[0],):
            raise ModelError(
                f"the trees ask for {self.width[0]} columns, not {x.shape[1:]}; register the model again"
            )

    def explain(self, x: np.ndarray) -> np.ndarray:
        """Compute the contribution of each feature to the log-odds of each row, along the row's paths.

        A step leads from a node's mean output (over the training rows that reached the node) to its child's;
        the difference is attributed to the feature that the node tests. Row sums plus the sum of the roots'
        mean outputs and the baseline equal the log-odds, up to rounding (`rounding`). Source: A. Saabas,
        "Interpreting random forests" (2014, the treeinterpreter package).

        Args:
            x: float64[n, f], C-contiguous.

        Returns:
            float64[n, f], log-odds.
        """
        self._check_width(x)
        out = np.zeros(x.shape)
        _walk_paths(x, self.nodes, self.means, self.roots, self.depths, out)
        contributions: np.ndarray = rounded(out)
        return contributions

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays by name, to be saved; `Trees(**arrays)` restores the trees."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def can_compile(estimator: Any) -> bool:
    """Return whether an estimator is a binary HistGradientBoostingClassifier without categorical features."""
    # by name, so that a worker that only scores trees does not import scikit-learn
    return (
        type(estimator).__name__ == "HistGradientBoostingClassifier"
        and getattr(estimator, "n_trees_per_iteration_", 0) == 1
        and getattr(estimator, "is_categorical_", None) is None
    )


def compile_trees(estimator: Any) -> Trees:
    """Flatten a fitted binary HistGradientBoostingClassifier without categorical features."""
    if not can_compile(estimator):
        raise ModelError(
            f"{type(estimator).__name__} cannot be compiled; score it with its own predict_proba"
        )
    width = int(estimator.n_features_in_)
    trees = [iteration[0].nodes for iteration in estimator._predictors]
    sizes = [len(tree) for tree in trees]
    roots = np.cumsum([0, *sizes[:-1]]) if trees else np.zeros(0)
    parts = [_flatten(tree, int(root), width) for tree, root in zip(trees, roots, strict=True)]
    return Trees(
        nodes=np.concatenate([part[0] for part in parts]) if parts else np.empty(0, NODE),
        values=np.concatenate([part[1] for part in parts]) if parts else np.empty(0),
        means=np.concatenate([part[2] for part in parts]) if parts else np.empty(0),
        roots=roots.astype(np.uint32),
        depths=np.array([tree["depth"].max() for tree in trees], dtype=np.int64),
        baseline=np.array([float(np.ravel(estimator._baseline_prediction)[0])]),
        width=np.array([width], dtype=np.int64),
    )


def _flatten(tree: np.ndarray, root: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a tree's nodes, values and means, breadth first; its root has index `root` among all nodes."""
    nodes = np.empty(len(tree), NODE)
    means = _means(tree)
    order = [0]
    for index, node in enumerate(order):  # the list grows while it is iterated: breadth first
        if tree["is_leaf"][node]:
            nodes[index] = (np.inf, 0, root + index)
            continue
        threshold, column = float(tree["num_threshold"][node]), int(tree["feature_idx"][node])
        left, right = int(tree["left"][node]), int(tree["right"][node])
        if threshold == -np.inf:
            raise ModelError("a tree splits at minus infinity; train without infinite feature values")
        child = root + len(order)
        if tree["missing_go_to_left"][node]:
            nodes[index] = (threshold, column, child)
            order += [left, right]
        else:
            nodes[index] = (-np.nextafter(threshold, np.inf), width + column, child)
            order += [right, left]
    return nodes, tree["value"][order].astype(np.float64), means[order]


def _means(tree: np.ndarray) -> np.ndarray:
    """Compute the mean leaf value of the training rows under each node.

    scikit-learn stores a value in inner nodes too, but without the learning rate, so it is not comparable
    with the leaves' values.
    """
    means = tree["value"].astype(np.float64)
    # deepest nodes first: children are deeper than their parent
    for node in np.argsort(tree["depth"], kind="stable")[::-1]:
        if not tree["is_leaf"][node]:
            children = [int(tree["left"][node]), int(tree["right"][node])]
            means[node] = np.average(means[children], weights=tree["count"][children].astype(np.float64))
    return means


@njit(types.void(_ROWS, _NODES, _VALUES, _ROOTS, _DEPTHS, types.float64, _VALUES), cache=True, nogil=True)
def _sum_leaves(x, nodes, values, roots, depths, baseline, out):  # type: ignore[no-untyped-def]
    n, width = x.shape
    rows = np.empty((BLOCK, 2 * width))
    at = np.empty(BLOCK, np.uint32)
    for start in range(0, n, BLOCK):
        count = min(n - start, BLOCK)
        for i in range(count):
            for j in range(width):
                # a node that separates missing from known values tests the negated column: -x > -inf. An x
                # of +inf would fail that test and count as missing, so it is clipped
                value = x[start + i, j]
                value = LARGEST if value > LARGEST else value
                value = -LARGEST if value < -LARGEST else value
                rows[i, j] = value
                rows[i, width + j] = -value
            out[start + i] = baseline
        for tree in range(len(roots)):
            for i in range(count):
                at[i] = roots[tree]
            for _ in range(depths[tree]):
                for i in range(count):
                    node = nodes[at[i]]
                    at[i] = node.child + np.uint32(rows[i, node.column] > node.threshold)
            for i in range(count):
                out[start + i] += values[at[i]]


_rounded = njit(rounded, inline="always")


@njit(types.void(_VALUES), cache=True, nogil=True)
def _to_probability(raw):  # type: ignore[no-untyped-def]
    for i in range(len(raw)):
        raw[i] = _rounded(1.0 / (1.0 + math.exp(-raw[i])))  # C libraries differ in exp's last bit


@njit(types.void(_ROWS, _NODES, _VALUES, _ROOTS, _DEPTHS, types.float64[:, ::1]), cache=True, nogil=True)
def _walk_paths(x, nodes, means, roots, depths, out):  # type: ignore[no-untyped-def]
    n, width = x.shape
    for i in range(n):
        for tree in range(len(roots)):
            at = roots[tree]
            for _ in range(depths[tree]):
                node = nodes[at]
                mirrored = node.column >= width
                column = node.column - width if mirrored else node.column
                value = (
                    min(max(x[i, column], -LARGEST), LARGEST) if not math.isnan(x[i, column]) else math.nan
                )
                child = node.child + np.uint32((-value if mirrored else value) > node.threshold)
                out[i, column] += means[child] - means[at]
                at = child

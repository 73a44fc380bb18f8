"""Bit-mask scoring of small trees: all split tests of all trees, column by column, for a block of rows.

A row starts with all leaves of a tree possible, one bit each. A test that the row passes ("greater than the
threshold") rules out the leaves below the first child of the tested node. After all tests, the first
remaining leaf is the row's. No node is looked up on the way, so the tests of a column can be stored together,
sorted by threshold, and 64 rows take each test in a few vector instructions. This takes a third to a quarter
of the time of walking the trees.
Source: Lucchese et al., "QuickScorer" (SIGIR 2015), and "V-QuickScorer" (2016).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types
from numba.cpython.unsafe.numbers import trailing_zeros

from feature_store.jit import njit

MOST_LEAVES = 64
"""Greatest number of leaves per tree: one bit each."""
BLOCK = 64
"""Rows that are tested together; with fewer the compiler emits no vector instructions."""
LARGEST = float(np.finfo(np.float64).max)
WIDTHS = {8: np.uint8, 32: np.uint32, 64: np.uint64}
"""Greatest number of leaves -> dtype of the mask."""

_trailing_zeros: Any = trailing_zeros  # mypy cannot type numba internals

# One signature for each mask width, compiled at import. Without signatures numba would compile a kernel while
# the stream runs, and another one at the first read-only batch (from Arrow, for example).
_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_SIGNATURES = [
    types.void(
        _ROWS, types.int64[::1], types.float64[::1], types.uint32[::1], mask[::1], types.float64[:, ::1],
        types.float64, types.float64[::1],
    )
    for mask in (types.uint8, types.uint32, types.uint64)
]  # fmt: skip


@dataclass(frozen=True)
class LeafBits:
    """The m tests of t trees over f columns; each column occurs twice, plain and negated (see trees.py)."""

    begins: np.ndarray
    """int64[2f + 1]: index of each column's first test; last, m."""
    thresholds: np.ndarray
    """float64[m], ascending in each column."""
    trees: np.ndarray
    """uint32[m]: tree of each test."""
    keeps: np.ndarray
    """uint8, uint32 or uint64[m]: mask of the leaves that are still possible after a passed test."""
    leaves: np.ndarray
    """float64[t, most leaves of a tree]: log-odds of each tree's leaves, depth first, first child first; 0 as
    padding."""

    def log_odds(self, x: np.ndarray, baseline: float) -> np.ndarray:
        """Add the trees' outputs to `baseline`, in tree order: float64[n, f] -> float64[n]."""
        out = np.empty(len(x))
        _sum_leaves(x, self.begins, self.thresholds, self.trees, self.keeps, self.leaves, baseline, out)
        return out


def leaf_bits(nodes: np.ndarray, values: np.ndarray, roots: np.ndarray, width: int) -> LeafBits | None:
    """Convert the trees of `trees.Trees` into masks; None if a tree has more than MOST_LEAVES leaves.

    Args:
        nodes: NODE[k], checked, as in `trees.Trees`.
        values: float64[k], output of each node in log-odds.
        roots: uint32[t], first node of each tree.
        width: number of features.
    """
    # a binary tree of k nodes has (k + 1) / 2 leaves; deep trees must not reach the recursion below
    if len(roots) and (np.diff(np.append(roots, len(nodes))).max() + 1) // 2 > MOST_LEAVES:
        return None
    tests: list[tuple[int, float, int, int]] = []
    leaves: list[list[float]] = []

    def below(at: int, tree: int) -> int:
        """Return the mask of the leaves below a node, and collect the leaves and tests met on the way."""
        if nodes["threshold"][at] == np.inf:
            leaves[tree].append(float(values[at]))
            return 1 << (len(leaves[tree]) - 1)
        child = int(nodes["child"][at])
        first, second = below(child, tree), below(child + 1, tree)
        tests.append((int(nodes["column"][at]), float(nodes["threshold"][at]), tree, ~first))
        return first | second

    for tree, root in enumerate(roots.tolist()):
        leaves.append([])
        below(root, tree)
    most = max(map(len, leaves), default=1)
    bits, mask = next((bits, kind) for bits, kind in WIDTHS.items() if most <= bits)
    outputs = np.zeros((len(leaves), most))
    for tree, values_of_tree in enumerate(leaves):
        outputs[tree, : len(values_of_tree)] = values_of_tree
    tests.sort()
    columns, thresholds, trees, keeps = zip(*tests, strict=True) if tests else ((), (), (), ())
    return LeafBits(
        begins=np.searchsorted(np.array(columns, dtype=np.int64), np.arange(2 * width + 1)),
        thresholds=np.array(thresholds, dtype=np.float64),
        trees=np.array(trees, dtype=np.uint32),
        keeps=np.array([keep & ((1 << bits) - 1) for keep in keeps], dtype=mask),
        leaves=outputs,
    )


@njit(_SIGNATURES, cache=True, nogil=True)
def _sum_leaves(x, begins, thresholds, trees, keeps, leaves, baseline, out):  # type: ignore[no-untyped-def]
    n, width = x.shape
    possible = np.empty((len(leaves), BLOCK), keeps.dtype)
    every = ~(keeps.dtype.type(0))
    column = np.zeros(BLOCK)
    for start in range(0, n, BLOCK):
        count = min(n - start, BLOCK)
        possible[:] = every
        for j in range(2 * width):
            if begins[j] == begins[j + 1]:
                continue
            greatest = -np.inf
            for i in range(count):
                value = x[start + i, j % width]
                value = LARGEST if value > LARGEST else value
                value = -LARGEST if value < -LARGEST else value
                value = value if j < width else -value
                column[i] = value
                greatest = value if value > greatest else greatest
            for test in range(begins[j], begins[j + 1]):
                threshold = thresholds[test]
                if not greatest > threshold:
                    break  # the next thresholds are greater still
                keep = keeps[test]
                row = possible[trees[test]]
                for i in range(BLOCK):
                    row[i] &= keep if column[i] > threshold else every
        for i in range(count):
            total = baseline
            for tree in range(len(leaves)):
                total += leaves[tree, _trailing_zeros(possible[tree, i])]
            out[start + i] = total

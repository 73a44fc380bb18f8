"""The array layout of compiled trees, and the checks that they must pass before a kernel walks them.

Kernels check no bounds: with a forged index in a file, a kernel would read anywhere in the worker's memory,
and the kernel of explanations would write there. So `trees.Trees` checks its arrays here, in less than a
millisecond for a usual model.

A node is 16 bytes: threshold, column, first child. Trees are stored one after another, each breadth first:
the k-th inner node of a tree, counted from 0, has its first child at the root's index + 1 + 2k, and the
second child next to it. A leaf has an infinite threshold and is its own child. A row of f features has 2f
columns: column f + j is column j, negated.
"""

import numpy as np

from models.errors import ModelError

NODE = np.dtype([("threshold", np.float64), ("column", np.uint32), ("child", np.uint32)])

MOST_FEATURES = 4_096
"""Maximum number of features: a kernel then needs 4 MiB for a block of 64 rows, which holds each feature
twice, as it is and negated."""
MOST_TREES = 10_000
"""Maximum number of trees: over thirty times the default of `fraud models train`; the bit masks (`leaf_bits`)
of a block of 64 rows then take 5 MB."""
MOST_NODES = 1 << 20
"""Maximum number of nodes: with a value and a mean for each, 32 bytes, so 32 MiB in each worker."""
MOST_STEPS = 1 << 17
"""Maximum number of steps from root to deepest leaf, summed over all trees: about a millisecond per
transaction."""


def check(
    nodes: np.ndarray,
    values: np.ndarray,
    means: np.ndarray,
    roots: np.ndarray,
    depths: np.ndarray,
    baseline: np.ndarray,
    width: np.ndarray,
) -> None:
    """Raise ModelError unless the arrays are t trees, m nodes in all, in this module's layout and limits.

    Args:
        nodes: NODE[m].
        values: float64[m], finite.
        means: float64[m], finite.
        roots: uint32[t], ascending from 0.
        depths: int64[t].
        baseline: float64[1], finite.
        width: int64[1], f.
    """
    count, trees = np.shape(nodes)[:1], np.shape(roots)[:1]
    for name, array, kind, shape in (
        ("nodes", nodes, NODE, count),
        ("values", values, np.float64, count),
        ("means", means, np.float64, count),
        ("roots", roots, np.uint32, trees),
        ("depths", depths, np.int64, trees),
        ("baseline", baseline, np.float64, (1,)),
        ("width", width, np.int64, (1,)),
    ):
        fits = array.dtype == kind and array.shape == shape and array.ndim == 1
        _demand(fits and array.flags.c_contiguous, f"{name} has another type or shape")
    _require_at_most("features", int(width[0]), MOST_FEATURES)
    _require_at_most("trees", len(roots), MOST_TREES)
    _require_at_most("nodes", len(nodes), MOST_NODES)
    _demand(width[0] > 0, "there are no features")
    for name, numbers in (("values", values), ("means", means), ("baseline", baseline)):
        _demand(np.isfinite(numbers).all(), f"{name} has a number that is not finite")
    _demand((nodes["column"] < 2 * width[0]).all(), "a node tests a column that does not exist")
    _demand(not np.isnan(nodes["threshold"]).any(), "a threshold is no number")
    if not len(roots):
        _demand(not len(nodes), "there are nodes and no trees")
        return
    begins = roots.astype(np.int64)
    sizes = np.diff(np.append(begins, len(nodes)))
    _demand(begins[0] == 0 and (sizes > 0).all(), "roots do not follow one another")
    _check_kids(nodes, begins, sizes, depths)


def _check_kids(nodes: np.ndarray, begins: np.ndarray, sizes: np.ndarray, depths: np.ndarray) -> None:
    """Raise ModelError unless each node but the roots is the child of exactly one earlier node of its tree.

    `depths` must be the depths of the trees, too.
    """
    at, child, inner = np.arange(len(nodes)), nodes["child"].astype(np.int64), nodes["threshold"] != np.inf
    tree = np.repeat(np.arange(len(begins)), sizes)
    before = np.cumsum(inner) - inner  # inner nodes before each node, over all trees
    expected = begins[tree] + 1 + 2 * (before - before[begins][tree])
    _demand((child == np.where(inner, expected, at)).all(), "a child is not at its index")
    _demand((child > at)[inner].all(), "a child lies before its parent")
    _demand((sizes == 1 + 2 * np.add.reduceat(inner.astype(np.int64), begins)).all(), "children are missing")

    _demand((depths >= 0).all(), "a depth is negative")
    _require_at_most(
        "steps from roots to leaves", max(int(depths.max()), int(depths.astype(np.float64).sum())), MOST_STEPS
    )
    steps = np.zeros(len(begins), np.int64)
    level = begins
    for _ in range(int(depths.max()) + 1):
        level = level[inner[level]]
        steps[tree[level]] += 1
        level = np.concatenate([child[level], child[level] + 1])
    _demand((steps == depths).all(), "a depth is not the tree's")


def _demand(holds: bool | np.bool_, problem: str) -> None:
    if not holds:
        raise ModelError(f"the model's trees are damaged or forged: {problem}; train and register it again")


def _require_at_most(noun: str, count: int, limit: int) -> None:
    if count > limit:
        raise ModelError(f"the model has {count:,} {noun}, more than {limit:,}; train a smaller one")

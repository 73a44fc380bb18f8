"""Export of a model and its policy to a JSON file that other engines read.

    {"features": [name, ...], "policy": {"threshold": ..., "max_count_5m": ...}, "trees": {...},
     "centroids": {country: [latitude, longitude], ...}}

Trees are the arrays of `models.tree_layout` as lists: `roots`, `thresholds`, `columns`, `children`, `values`,
and the number `baseline`. `children` has the index of each node's first child; the second child is next to
it. A leaf is its own child and has the threshold null. With f features, column f + j is column j, negated.
Centroids are in radians. Floats have all their digits.
"""

import math
from typing import Any

import numpy as np

from feature_store.kernels.countries import CENTROIDS
from loadtests.compare.errors import CompareError
from models.policy import Policy
from models.scoring import Scorer
from models.trees import Trees


def exported(scorer: Scorer, policy: Policy) -> dict[str, Any]:
    """Return a model and its policy as JSON values.

    Raises:
        CompareError: the model does not consist of compiled trees, or the policy has rules that the other
            engines lack.
    """
    trees = scorer.classifier
    if not isinstance(trees, Trees):
        raise CompareError(
            f"{scorer.name} {scorer.version} does not consist of compiled trees; choose another model"
        )
    if policy != Policy(policy.threshold, policy.max_count_5m):
        raise CompareError("only threshold and max_count_5m are compared; remove other rules from the policy")
    thresholds = [None if math.isinf(cut) else cut for cut in trees.nodes["threshold"].tolist()]
    return {
        "features": list(scorer.feature_names),
        "policy": {"threshold": policy.threshold, "max_count_5m": policy.max_count_5m},
        "trees": {
            "baseline": float(trees.baseline[0]),
            "roots": trees.roots.tolist(),
            "thresholds": thresholds,
            "columns": trees.nodes["column"].tolist(),
            "children": trees.nodes["child"].tolist(),
            "values": trees.values.tolist(),
        },
        "centroids": _centroids(),
    }


def _centroids() -> dict[str, list[float]]:
    """Return latitude and longitude in radians by country, of the countries with a centroid."""
    codes = np.flatnonzero(~np.isnan(CENTROIDS[:, 0]))
    return {
        chr(65 + code // 26) + chr(65 + code % 26): [math.radians(degrees) for degrees in CENTROIDS[code]]
        for code in codes.tolist()
    }

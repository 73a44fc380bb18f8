"""The model file that other engines read."""

import json

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from feature_store.kernels.countries import CENTROIDS
from loadtests.compare.errors import CompareError
from loadtests.compare.exported import exported
from models.policy import Policy
from models.scoring import Estimator, Scorer
from models.trees import compile_trees

pytestmark = pytest.mark.unit
POLICY = Policy(0.25, 7)


def scorer() -> Scorer:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2_000, 3))
    x[rng.random(x.shape) < 0.1] = np.nan
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=5, random_state=0)
    model.fit(x, np.nan_to_num(x[:, 0]) + rng.normal(size=2_000) > 1)
    return Scorer("card-fraud", "3", "0" * 64, ("amount", "count_5m", "hour_of_day"), compile_trees(model))


def test_the_file_holds_every_number_of_the_trees() -> None:
    model = scorer()
    content = json.loads(json.dumps(exported(model, POLICY), allow_nan=False))
    assert content["features"] == ["amount", "count_5m", "hour_of_day"]
    assert content["policy"] == {"threshold": 0.25, "max_count_5m": 7}
    arrays, trees = model.classifier.arrays(), content["trees"]  # type: ignore[attr-defined]
    assert trees["baseline"] == arrays["baseline"][0]
    assert trees["roots"] == arrays["roots"].tolist()
    assert trees["values"] == arrays["values"].tolist()
    assert trees["columns"] == arrays["nodes"]["column"].tolist()
    assert trees["children"] == arrays["nodes"]["child"].tolist()
    cuts = [np.inf if cut is None else cut for cut in trees["thresholds"]]
    assert cuts == arrays["nodes"]["threshold"].tolist()
    leaves = [node for node, child in enumerate(trees["children"]) if child == node]
    assert [trees["thresholds"][leave] for leave in leaves] == [None] * len(leaves)
    assert len(leaves) == 10 * 5


def test_the_file_holds_the_centroids_of_countries() -> None:
    centroids = exported(scorer(), POLICY)["centroids"]
    assert len(centroids) == np.count_nonzero(~np.isnan(CENTROIDS[:, 0]))
    assert np.degrees(centroids["FR"]) == pytest.approx([46.6, 2.5])
    assert "ZZ" not in centroids


def test_a_model_that_other_engines_cannot_run_is_refused() -> None:
    with pytest.raises(CompareError, match="other rules"):
        exported(scorer(), Policy(0.25, 7, max_count_1m=3))
    forest = Estimator(RandomForestClassifier(), np.zeros(1))
    with pytest.raises(CompareError, match="compiled trees"):
        exported(Scorer("card-fraud", "4", "0" * 64, ("amount",), forest), POLICY)

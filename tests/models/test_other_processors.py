"""A processor without vector instructions, with another matrix product, writes the same bytes."""

import os
import pickle
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from harness.other_processor import older
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from thoroughness import only_thorough

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="hides instructions of x86-64 processors"),
]
ROWS, WIDTH = 100_000, 40


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Classifiers that call exp, and those that multiply matrices."""
    rng = np.random.default_rng(5)
    x = rng.exponential(50, (4_000, WIDTH))
    y = x[:, 0] + x[:, 1] + rng.normal(0, 40, 4_000) > 180
    steps = SimpleImputer(add_indicator=True, keep_empty_features=True), StandardScaler()
    fitted = {
        "trees": HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, random_state=0).fit(x, y),
        "logistic": make_pipeline(*steps, LogisticRegression(max_iter=100)).fit(x, y),
        "network": make_pipeline(*steps, MLPClassifier((8,), max_iter=400, random_state=0)).fit(x, y),
    }
    path = tmp_path_factory.mktemp("models") / "models.pickle"
    rows = rng.exponential(50, (ROWS, WIDTH))
    path.write_bytes(pickle.dumps({**fitted, "rows": rows, "medians": np.median(x, axis=0)}))
    return path


def written(models: Path, variables: dict[str, str], *options: str) -> dict[str, bytes]:
    """What a process with these environment variables writes."""
    target = models.with_name(f"results-{len(variables)}.pickle")
    subprocess.run(
        [sys.executable, "-m", "harness.other_processor", str(models), str(target), *options],
        env={**os.environ, "PYTHONPATH": ".:tests", **variables}, check=True, timeout=500,
    )  # fmt: skip
    result: dict[str, bytes] = pickle.loads(target.read_bytes())
    return result


@only_thorough
def test_scores_reasons_and_distances_are_the_same_bytes_on_an_older_processor(models: Path) -> None:
    here, there = written(models, {}), written(models, older())
    assert {name for name in here if here[name] != there[name]} == set()


@only_thorough
def test_all_features_are_the_same_bytes_on_an_older_processor(models: Path) -> None:
    here, there = written(models, {}, "features"), written(models, older(), "features")
    assert here == there

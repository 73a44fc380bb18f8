"""Registration and loading with a real MLflow registry on sqlite and files."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from models import loading, registry, tracking
from models.errors import ModelError, ModelMissingError, ModelUnavailableError
from models.loading import load
from models.registry import ModelRef, register
from models.training_record import TrainingRecord
from models.trees import Trees

pytestmark = [pytest.mark.integration, pytest.mark.without_stack]

NAMES = tuple(f"f{i}" for i in range(6))
FEATURES = tuple(f"{name}:1" for name in NAMES)
RECORD = TrainingRecord(metrics={"average_precision": 0.5})


def rows(seed: int = 0, count: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 6))
    x[rng.random(x.shape) < 0.05] = np.nan
    return x, (np.nan_to_num(x[:, 0]) + np.nan_to_num(x[:, 1]) > 1).astype(int)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


def registered(estimator: object, uri: str, name: str) -> ModelRef:
    x, y = rows()
    estimator.fit(x, y)  # type: ignore[attr-defined]
    typical = np.nanmedian(x, axis=0)
    return register(estimator, FEATURES, x[:80], typical, uri, name=name, record=RECORD)


@pytest.fixture(scope="module")
def ref(uri: str) -> ModelRef:
    return registered(HistGradientBoostingClassifier(max_iter=10, random_state=0), uri, "boosted")


@pytest.mark.parametrize(
    "estimator",
    [
        HistGradientBoostingClassifier(max_iter=10, random_state=0),
        RandomForestClassifier(8, random_state=0, n_jobs=2),
        make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_any_classifier_is_loaded_with_its_scores(estimator: object, uri: str, tmp_path: Path) -> None:
    ref = registered(estimator, uri, f"any-{type(estimator).__name__}")
    scorer = loading.verify(ref, uri, tmp_path)
    x, _ = rows(seed=1, count=700)
    expected = estimator.predict_proba(x)[:, 1]  # type: ignore[attr-defined]
    np.testing.assert_allclose(scorer.score(x), expected, rtol=0, atol=6e-10)
    parts = np.concatenate([scorer.score(part) for part in np.split(x, [1, 3, 300, 301])])
    assert np.array_equal(parts, scorer.score(x))
    assert scorer.explain(x[:10]).shape == (10, 6)
    assert np.abs(scorer.explain(x[:200])).mean(axis=0).argmax() in (0, 1)
    assert (scorer.name, scorer.version, scorer.digest) == (ref.name, ref.version, ref.digest)
    assert scorer.feature_names == NAMES


def test_a_version_is_found_and_listed_with_its_metrics(ref: ModelRef, uri: str) -> None:
    assert registry.find("boosted", ref.version, uri) == ref
    assert registry.versions(uri, "boosted") == [(ref, {"average_precision": 0.5})]
    for version in ("99", "newest"):
        missing = f"the registry has no model boosted/{version} .*; `fraud models list` shows"
        with pytest.raises(ModelMissingError, match=missing):
            registry.find("boosted", version, uri)


def test_versions_are_listed_though_a_run_is_gone_or_has_a_metric_that_is_no_number(uri: str) -> None:
    name, tags = "runs", {"features": FEATURES[0], "digest": "ab" * 32}
    with tracking.registry(uri, creates=True) as client:
        client.create_registered_model(name)
        for metric in (0.5, float("nan"), 0.7):
            run = client.create_run(tracking.experiment_id(client, uri)).info.run_id
            client.log_metric(run, "auc_roc", metric)
            client.create_model_version(name, "file:///none", run, tags=tags)
        first = client.get_model_version(name, "1").run_id
        client.delete_run(first)
        client._tracking_client.store._hard_delete_run(first)  # as `mlflow gc` does
    listed = [(ref.version, metrics) for ref, metrics in registry.versions(uri, name)]
    assert listed == [("3", {"auc_roc": 0.7}), ("2", {}), ("1", {})]


def test_the_training_scores_are_stored_with_the_version(ref: ModelRef, uri: str, tmp_path: Path) -> None:
    assert registry.training_scores(ref, uri) is None  # `registered` stores no training scores
    x, y = rows()
    estimator = HistGradientBoostingClassifier(max_iter=3, random_state=0).fit(x, y)
    scores = np.append(np.arange(100) / 100, 1.0)
    scored = register(estimator, FEATURES, x[:80], np.zeros(6), uri, name="scored", scores=scores)
    histogram = registry.training_scores(scored, uri)
    # a bucket includes its upper bound: the first has six scores, 0, 0.01 .. 0.05, the next 19 have five each
    assert histogram == {
        "le": [step / 20 for step in range(1, 21)],
        "counts": [6, *[5] * 19, 0],
        "sum": pytest.approx(scores.sum()),
    }
    known = loading.load(scored, uri, tmp_path)
    assert [known.percentile(score) for score in (0.0, 0.5, 0.995, 1.0)] == [0, 50, 99, 100]
    assert loading.load(ref, uri, tmp_path).percentile(0.5) is None
    with tracking.registry(uri, creates=True) as client:
        client.set_model_version_tag(
            "scored", scored.version, registry.SCORES_TAG, '{"le": [], "counts": [1]}'
        )
    with pytest.raises(ModelError, match="training_scores"):
        registry.training_scores(scored, uri)


def test_a_cached_model_loads_without_mlflow_and_scikit_learn(
    ref: ModelRef, uri: str, tmp_path: Path
) -> None:
    load(ref, uri, tmp_path)
    program = f"""
import sys
from pathlib import Path
from models.loading import load
from models.registry import ModelRef
load({ref!r}, "sqlite:////nowhere/mlflow.db", Path({str(tmp_path)!r}))
print([name for name in ("mlflow", "sklearn", "pandas", "confluent_kafka") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_many_loaders_at_once_make_one_copy(ref: ModelRef, uri: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        scorers = list(pool.map(lambda _: load(ref, uri, tmp_path), range(8)))
    x, _ = rows(seed=2)
    assert all(np.array_equal(scorer.score(x), scorers[0].score(x)) for scorer in scorers)
    assert [path.name for path in tmp_path.iterdir()] == [ref.digest]


@pytest.mark.parametrize("damage", ["changed", "missing", "added"])
def test_a_damaged_copy_is_replaced(ref: ModelRef, uri: str, tmp_path: Path, damage: str) -> None:
    load(ref, uri, tmp_path)
    victim = tmp_path / ref.digest / "extra_files" / "scorer.npz"
    if damage == "changed":
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
    elif damage == "missing":
        victim.unlink()
    else:
        (tmp_path / ref.digest / "more").write_text("x")
    load(ref, uri, tmp_path)
    assert registry.artifact.digest(tmp_path / ref.digest) == ref.digest


def test_files_changed_in_the_registry_are_refused(tmp_path: Path) -> None:
    uri, cache = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "cache"
    ref = registered(HistGradientBoostingClassifier(max_iter=3, random_state=0), uri, "changed")
    (stored,) = (tmp_path / "artifacts").rglob("scorer.json")
    stored.write_text(stored.read_text() + "\n")
    with pytest.raises(ModelError, match="files were changed"):
        load(ref, uri, cache)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("features", [FEATURES[:-1], FEATURES[::-1], ("f0:2", *FEATURES[1:])])
def test_features_other_than_the_rollouts_are_refused(
    ref: ModelRef, uri: str, tmp_path: Path, features: tuple[str, ...]
) -> None:
    with pytest.raises(ModelError, match="other features"):
        load(replace(ref, features=features), uri, tmp_path)


def test_scores_that_differ_from_the_golden_ones_are_refused(
    ref: ModelRef, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = Trees.score
    monkeypatch.setattr(Trees, "score", lambda self, x: score(self, x) + 1e-6)
    with pytest.raises(ModelError, match="golden"):
        load(ref, uri, tmp_path)


def test_an_unknown_registry_or_model_is_one_clear_error(
    ref: ModelRef, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelMissingError, match=r"the registry has no model nobody/1 .*fraud models list"):
        load(replace(ref, name="nobody"), uri, tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")  # they would take seconds
    with pytest.raises(ModelUnavailableError, match="registry failed"):
        load(ref, "http://127.0.0.1:1", tmp_path)
    with pytest.raises(ModelUnavailableError, match="registry failed") as fault:
        load(ref, "http://ada:hunter2@127.0.0.1:1", tmp_path)
    assert "hunter2" not in str(fault.value)


def test_a_misspelt_registry_in_sqlite_is_refused_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for uri in (
        "sqlite:///mlflow.db",
        f"sqlite:///{tmp_path}/mlflow.db",
        "sqlite+pysqlite:///mlflow.db?timeout=5",
    ):
        with pytest.raises(ModelUnavailableError, match=r"no file .*mlflow.db; check"):
            registry.versions(uri)
    assert not list(tmp_path.iterdir())


def test_a_store_whose_library_is_not_here_is_one_clear_error(
    ref: ModelRef, uri: str, tmp_path: Path
) -> None:
    """The machine that promoted the model had the store's library; this one cannot fetch the model."""
    with tracking.registry(uri, creates=True) as client:
        client.create_registered_model("elsewhere")
        version = client.create_model_version("elsewhere", "gs://bucket/model").version
    with pytest.raises(
        ModelUnavailableError, match=r"elsewhere 1 cannot be fetched .*No module named 'google"
    ):
        load(replace(ref, name="elsewhere", version=str(version)), uri, tmp_path)


def test_a_full_disk_is_not_blamed_on_the_registry(
    ref: ModelRef, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.store.artifact import local_artifact_repo

    def copy(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(local_artifact_repo.shutil, "copy2", copy)
    with pytest.raises(ModelUnavailableError, match="not copied: No space left on device; free space"):
        load(ref, uri, tmp_path)


def test_a_row_of_another_width_is_refused(ref: ModelRef, uri: str, tmp_path: Path) -> None:
    scorer = load(ref, uri, tmp_path)
    with pytest.raises(ModelError, match="takes 6 features"):
        scorer.score(np.zeros((3, 5)))

"""Malicious model files in a real registry: none of their code runs."""

import json
import os
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import skops.io
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from models import archives, artifact, loading, registry, tracking
from models.errors import ModelError
from models.percentiles import LEVELS
from models.registry import ModelRef
from models.scoring import Scorer

pytestmark = [pytest.mark.integration, pytest.mark.without_stack]

FEATURES = tuple(f"f{i}:1" for i in range(4))


class Payload:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the registry and its files."""
    return tmp_path_factory.mktemp("foreign")


@pytest.fixture(scope="module")
def uri(home: Path) -> str:
    return f"sqlite:///{home}/mlflow.db"


def register(estimator: Any, uri: str) -> ModelRef:
    """Register a model under a unique name."""
    x = np.random.default_rng(0).normal(size=(300, 4))
    estimator.fit(x, x[:, 0] > 0.5)
    name = f"foreign-{uuid.uuid4()}"
    return registry.register(estimator, FEATURES, x[:50], np.median(x, axis=0), uri, name=name)


def tag(ref: ModelRef, uri: str, digest: str) -> None:
    with tracking.registry(uri, creates=True) as client:
        client.set_model_version_tag(ref.name, ref.version, "digest", digest)


def forge(ref: ModelRef, uri: str, home: Path, change: Callable[[Path], None]) -> ModelRef:
    """Change a registered model's files, and set the registered digest to that of the changed files."""
    every = (path.parent for path in (home / "artifacts").rglob("MLmodel"))
    (stored,) = (path for path in every if artifact.digest(path) == ref.digest)
    change(stored)
    tag(ref, uri, artifact.digest(stored))
    return registry.find(ref.name, ref.version, uri)


def verified(ref: ModelRef, uri: str, directory: Path) -> Scorer:
    return loading.verify(ref, uri, directory / "cache")


def trees() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=8, random_state=0)


@pytest.mark.parametrize("serialization", ["pickle", "cloudpickle"])
def test_a_pickle_in_a_model_is_not_run(uri: str, home: Path, tmp_path: Path, serialization: str) -> None:
    ref, trace = register(trees(), uri), tmp_path / "trace"

    def change(stored: Path) -> None:
        (stored / "model.pkl").write_bytes(pickle.dumps(Payload(trace)))
        (stored / "model.skops").write_bytes(pickle.dumps(Payload(trace)))
        described = (stored / "MLmodel").read_text()
        described = described.replace("model.skops", "model.pkl")
        (stored / "MLmodel").write_text(
            described.replace("serialization_format: skops", f"serialization_format: {serialization}")
        )

    scorer = verified(forge(ref, uri, home, change), uri, tmp_path)
    assert np.isfinite(scorer.score(np.zeros((3, 4)))).all()
    assert not trace.exists()
    pickle.loads((tmp_path / "cache" / scorer.digest / "model.pkl").read_bytes())
    assert trace.exists()  # so unpickling would have run the code


def test_an_estimator_that_is_a_pickle_is_refused(uri: str, home: Path, tmp_path: Path) -> None:
    ref, trace = register(LogisticRegression(), uri), tmp_path / "trace"

    def change(stored: Path) -> None:
        (stored / "model.skops").write_bytes(pickle.dumps(Payload(trace)))

    with pytest.raises(ModelError, match="cannot be read"):
        verified(forge(ref, uri, home, change), uri, tmp_path)
    assert not trace.exists()


def test_arrays_that_are_pickles_are_refused(uri: str, home: Path, tmp_path: Path) -> None:
    ref, trace = register(trees(), uri), tmp_path / "trace"

    def change(stored: Path) -> None:
        path = stored / "extra_files" / "scorer.npz"
        with np.load(path) as archive:
            known = dict(archive)
        np.savez(path, **{**known, "typical": np.array([Payload(trace)], dtype=object)})

    with pytest.raises(ModelError, match="cannot be read"):
        verified(forge(ref, uri, home, change), uri, tmp_path)
    assert not trace.exists()


def test_types_declared_trusted_by_a_model_are_not_trusted(uri: str, home: Path, tmp_path: Path) -> None:
    ref, trace = register(LogisticRegression(), uri), tmp_path / "trace"

    def change(stored: Path) -> None:
        with ZipFile(stored / "model.skops") as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        schema = json.loads(members["schema.json"])
        text = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode"}
        schema["content"]["content"]["verbose"] = {
            "__class__": "open",
            "__module__": "io",
            "__loader__": "ConstructorFromReduceNode",
            "content": {
                "__class__": "tuple",
                "__module__": "builtins",
                "__loader__": "TupleNode",
                "content": [{**text, "content": json.dumps(part)} for part in (str(trace), "w")],
            },
        }
        with ZipFile(stored / "model.skops", "w") as archive:
            for name, member in {**members, "schema.json": json.dumps(schema)}.items():
                archive.writestr(name, member)
        described = stored / "extra_files" / "scorer.json"
        listed = {**json.loads(described.read_text()), "trusted_types": ["io.open"]}
        described.write_text(json.dumps(listed))
        mlflow = stored / "MLmodel"
        mlflow.write_text(
            mlflow.read_text().replace("skops_trusted_types: []", "skops_trusted_types: [io.open]")
        )

    ref = forge(ref, uri, home, change)
    with pytest.raises(ModelError, match=r"holds a io\.open .*do not load"):
        verified(ref, uri, tmp_path)
    assert not trace.exists()
    skops.io.load(tmp_path / "cache" / ref.digest / "model.skops", trusted=["io.open"])
    assert trace.exists()  # so a trusting reader would have run the call


def test_mlflows_loaders_are_off(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "true")
    scorer = verified(register(trees(), uri), uri, tmp_path)
    import mlflow.sklearn
    from mlflow.exceptions import MlflowException

    assert os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
    with pytest.raises(MlflowException, match="disallowed"):
        mlflow.sklearn.load_model(str(tmp_path / "cache" / scorer.digest))


def arrays_changed(change: Callable[[dict[str, np.ndarray]], None]) -> Callable[[Path], None]:
    def forge_arrays(stored: Path) -> None:
        path = stored / "extra_files" / "scorer.npz"
        with np.load(path) as archive:
            known = dict(archive)
        change(known)
        np.savez(path, **known)

    return forge_arrays


def fewer_names(stored: Path) -> None:
    path = stored / "extra_files" / "scorer.json"
    described = json.loads(path.read_text())
    path.write_text(json.dumps({**described, "features": described["features"][:2]}))


FORGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a child beyond the nodes": (
        arrays_changed(lambda known: known["trees.nodes"]["child"].__setitem__(0, 10**6)),
        "a child is not at its index",
    ),
    "trees of more columns": (
        arrays_changed(lambda known: known["trees.width"].__setitem__(0, 4_000)),
        "do not match",
    ),
    "fewer names than columns": (fewer_names, "do not match"),
    "no golden rows": (
        arrays_changed(
            lambda known: known.update({name: known[name][:0] for name in known if "golden" in name})
        ),
        "do not match",
    ),
    "quantiles that do not ascend": (
        arrays_changed(lambda known: known.update(quantiles=-np.arange(float(LEVELS.size)))),
        "quantiles do not ascend",
    ),
    "quantiles of other percentiles": (
        arrays_changed(lambda known: known.update(quantiles=np.zeros(7))),
        "quantiles do not ascend",
    ),
    "other golden scores": (
        arrays_changed(lambda known: known["golden.scores"].__iadd__(1e-6)),
        "does not reproduce its golden scores",
    ),
    "no arrays": (lambda stored: (stored / "extra_files" / "scorer.npz").write_bytes(b""), "cannot be read"),
    "large files": (
        lambda stored: (stored / "more").write_bytes(bytes(2 << 20)),
        r"have 2\.\d MiB, more than 1",
    ),
}


@pytest.mark.parametrize(("change", "match"), FORGED.values(), ids=FORGED.keys())
def test_forged_files_are_refused(
    uri: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    match: str,
) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 20)
    ref = register(trees(), uri)
    verified(ref, uri, tmp_path)
    with pytest.raises(ModelError, match=match):
        verified(forge(ref, uri, home, change), uri, tmp_path)


def test_an_estimator_that_cannot_answer_is_one_clear_error(uri: str, home: Path, tmp_path: Path) -> None:
    def change(stored: Path) -> None:
        skops.io.dump(LogisticRegression(), stored / "model.skops")  # never fitted

    with pytest.raises(ModelError, match="cannot score its golden rows"):
        verified(forge(register(LogisticRegression(), uri), uri, home, change), uri, tmp_path)


def test_columns_that_the_registry_does_not_name_are_refused(uri: str, home: Path, tmp_path: Path) -> None:
    def change(stored: Path) -> None:
        path = stored / "extra_files" / "scorer.json"
        described = json.loads(path.read_text())
        path.write_text(json.dumps({**described, "features": [*described["features"][:3], "amount:1"]}))

    with pytest.raises(ModelError, match="trained on other features than the rollout names"):
        verified(forge(register(trees(), uri), uri, home, change), uri, tmp_path)


def test_a_digest_that_is_a_path_deletes_nothing(uri: str, tmp_path: Path) -> None:
    ref, precious = register(trees(), uri), tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    tag(ref, uri, str(precious))
    with pytest.raises(ModelError, match="no SHA-256"):
        verified(registry.find(ref.name, ref.version, uri), uri, tmp_path)
    assert (precious / "file").read_text() == "kept"
    assert registry.versions(uri, ref.name) == []


def test_an_estimator_that_workers_cannot_load_is_not_registered(uri: str) -> None:
    x = np.random.default_rng(0).normal(size=(300, 4))
    estimator = GradientBoostingClassifier(n_estimators=2).fit(x, x[:, 0] > 0.5)
    with pytest.raises(ModelError, match="GradientBoostingClassifier"):
        registry.register(estimator, FEATURES, x[:50], np.zeros(4), uri, name="none")
    assert registry.versions(uri, "none") == []


def test_columns_that_do_not_fit_the_model_are_not_registered(uri: str) -> None:
    x = np.random.default_rng(0).normal(size=(300, 4))
    model = trees().fit(x, x[:, 0] > 0.5)
    with pytest.raises(ModelError, match="do not match"):
        registry.register(model, FEATURES[:3], x[:50], np.zeros(4), uri, name="none")
    assert registry.versions(uri, "none") == []


def test_an_estimator_that_scores_otherwise_than_its_trees_is_not_registered(uri: str) -> None:
    class Cautious(HistGradientBoostingClassifier):
        def predict_proba(self, x: np.ndarray) -> np.ndarray:
            return np.asarray(super().predict_proba(x) / 2)

    Cautious.__name__ = "HistGradientBoostingClassifier"
    with pytest.raises(ModelError, match="would not score as the estimator does"):
        register(Cautious(max_iter=5, random_state=0), uri)

"""Models in MLflow's registry: register one, load one that a rollout names.

A rollout pins a model by the digest of its files. A loader copies them once into a local directory named by
the digest, verifies the digest at every load, and needs MLflow only for the copy.
"""

import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feature_store import catalogue
from models import archives, artifact, estimator_file, tracking
from models.errors import ModelError, ModelUnavailableError, naming
from models.score_histogram import ScoreHistogram
from models.scoring import Scorer

NAME = "card-fraud"
"""Of the registered model."""
DIGEST = re.compile("[0-9a-f]{64}")
SCORES_TAG = "training_scores"
"""Of a model version: JSON of a score histogram."""


@dataclass(frozen=True)
class ModelRef:
    """One version of a registered model, pinned by content: `model` of model-rollout.v1."""

    name: str
    """Of the registered model."""
    version: str
    """Of the registered model."""
    uri: str
    """models:/<name>/<version>."""
    digest: str
    """SHA-256 of the artifact's files, 64 hex digits."""
    features: tuple[str, ...]
    """Its columns in order, each a feature's name:version."""

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "ModelRef":
        """From an object of the rollout's contract; unknown fields are ignored."""
        known = {name: fields[name] for name in ModelRef.__dataclass_fields__}
        return ModelRef(**{**known, "features": tuple(fields["features"])})


def register(
    estimator: Any,
    features: tuple[str, ...],
    golden_rows: np.ndarray,
    typical: np.ndarray,
    tracking_uri: str,
    *,
    metrics: dict[str, float] | None = None,
    params: dict[str, str] | None = None,
    scores: np.ndarray | None = None,
    name: str = NAME,
) -> ModelRef:
    """Log a fitted classifier with MLflow and register it as the next version of `name`.

    Args:
        estimator: fitted scikit-learn classifier with predict_proba; class 1 is fraud.
        features: of its columns, name:version.
        golden_rows: float64[k, f]; their scores are stored and must be reproduced at every load.
        typical: float64[f], training medians.
        tracking_uri: of MLflow; `sqlite:////directory/mlflow.db` needs no server.
        metrics: of its evaluation, logged to the run.
        params: how it was trained, logged to the run.
        scores: float64[n] of rows that the model was judged by; their histogram stays with the version
            (`training_scores`), for guards that look for drift, their quantiles with the model.
        name: of the registered model.

    Raises:
        ModelError: the registry cannot be reached, or the model does not come back as it went in.
    """
    import sklearn
    import skops.io

    with tempfile.TemporaryDirectory() as scratch, tracking.registry(tracking_uri) as client:
        import mlflow.sklearn
        from mlflow.models import infer_signature

        extra = artifact.write(Path(scratch), estimator, features, golden_rows, typical, scores)
        with mlflow.start_run(experiment_id=tracking.experiment_id(client, tracking_uri)):
            mlflow.log_params(params or {})
            mlflow.log_metrics(metrics or {})
            logged = mlflow.sklearn.log_model(
                estimator,
                name=name,
                signature=infer_signature(golden_rows, estimator.predict_proba(golden_rows)),
                pyfunc_predict_fn="predict_proba",
                # named, so that MLflow does not start a second Python to find out
                pip_requirements=[f"scikit-learn=={sklearn.__version__}", f"numpy=={np.__version__}"],
                serialization_format="skops",
                # for those who load it with MLflow; what our own processes load does not depend on it
                skops_trusted_types=skops.io.get_untrusted_types(data=estimator_file.dumps(estimator)),
                extra_files=[str(path) for path in extra],
            )
        # not mlflow.register_model: it prints
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name)
        version = client.create_model_version(
            name,
            logged.model_uri,
            logged.run_id,
            tags={"features": ",".join(features), **_score_tag(scores)},
            model_id=logged.model_id,
        ).version
        with tempfile.TemporaryDirectory() as back:
            # of the files as the registry gives them out, which is what loaders will see
            digest = artifact.digest(_download(client, name, str(version), Path(back), tracking_uri))
        client.set_model_version_tag(name, version, "digest", digest)
    return ModelRef(name, str(version), f"models:/{name}/{version}", digest, features)


def find(name: str, version: str, tracking_uri: str) -> ModelRef:
    """The reference of a version that `register` wrote.

    Raises:
        ModelError: there is no such version, or it was registered by other means.
    """
    with tracking.registry(tracking_uri) as client:
        return _ref(client.get_model_version(name, version))


def versions(tracking_uri: str, name: str = NAME) -> list[tuple[ModelRef, dict[str, float]]]:
    """All registered versions with the metrics of their runs, newest first."""
    with tracking.registry(tracking_uri) as client:
        found = [
            found
            for found in client.search_model_versions(f"name = '{name}'")
            if "features" in found.tags and DIGEST.fullmatch(found.tags.get("digest", ""))
        ]
        found.sort(key=lambda found: int(found.version), reverse=True)
        return [
            (_ref(found), dict(client.get_run(found.run_id).data.metrics) if found.run_id else {})
            for found in found
        ]


def point(alias: str, ref: ModelRef, tracking_uri: str) -> None:
    """Make an alias of the registered model name this version; it changes nothing that decides.

    Raises:
        ModelError: the registry does not answer, or has no such version.
    """
    with tracking.registry(tracking_uri) as client:
        client.set_registered_model_alias(ref.name, alias, ref.version)


def training_scores(ref: ModelRef, tracking_uri: str) -> dict[str, Any] | None:
    """Histogram `{le, counts, sum}` of the scores that `register` was given; None if it was given none.

    A tag, which the digest does not cover: whoever opens a rollout copies it into the rollout's event.

    Raises:
        ModelMissingError: there is no such version.
        ModelUnavailableError: the registry cannot be asked now.
        ModelError: the tag is damaged.
    """
    with tracking.registry(tracking_uri) as client:
        tag = client.get_model_version(ref.name, ref.version).tags.get(SCORES_TAG)
    if tag is None:
        return None
    try:
        return ScoreHistogram.from_json(json.loads(tag)).to_json()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelError(
            f"the tag {SCORES_TAG} of model {ref.name} {ref.version} is no histogram: {error}; delete "
            "the tag, or register the model again"
        ) from error


def load(ref: ModelRef, tracking_uri: str, cache_dir: Path) -> Scorer:
    """The model of a rollout, ready to score.

    The first load copies the artifact to `cache_dir/<digest>`; later ones, also in other processes, do
    without MLflow. A damaged copy is replaced.

    Args:
        ref: what the rollout names.
        tracking_uri: of MLflow.
        cache_dir: local directory, made if missing; many processes may share it.

    Raises:
        ModelMissingError: the registry has no such version.
        ModelUnavailableError: its files cannot be had now.
        ModelError: other files than the rollout pinned, unreadable, trained on other features than the
            rollout names, or other scores than its golden ones.
    """
    return _loaded(ref, tracking_uri, cache_dir)[0]


def verify(ref: ModelRef, tracking_uri: str, cache_dir: Path) -> Scorer:
    """What must hold before a rollout: `load` works, and the answers are what registration demands.

    Arguments and errors as for `load`; the error's `check` names what did not hold: files, trust, features,
    golden, answers.
    """
    scorer, content = _loaded(ref, tracking_uri, cache_dir)
    # registration checked it too, but on the registering user's machine
    with naming("answers"):
        artifact.check_answers(scorer, content.golden_rows)
    return scorer


def _loaded(ref: ModelRef, tracking_uri: str, cache_dir: Path) -> tuple[Scorer, artifact.Content]:
    """The model, and its files' content; arguments and errors as for `load`."""
    label = f"model {ref.name} {ref.version}"
    with naming("files"):
        directory = _cached(ref, tracking_uri, cache_dir, label)
    with naming("trust"):
        content = artifact.read(directory)
    with naming("features"):
        if content.features != ref.features:
            raise ModelError(
                f"{label} was trained on other features than the rollout names; roll it out again"
            )
        names = catalogue.names_of(content.features)
    scorer = Scorer(ref.name, ref.version, ref.digest, names, content.classifier, content.quantiles)
    with naming("golden"):
        content.check_golden(scorer.score, label)
    return scorer, content


def _score_tag(scores: np.ndarray | None) -> dict[str, str]:
    if scores is None:
        return {}
    return {SCORES_TAG: json.dumps(ScoreHistogram.of(scores).to_json())}


def _ref(found: Any) -> ModelRef:
    if not {"digest", "features"} <= set(found.tags):
        raise ModelError(
            f"model {found.name} {found.version} was registered by other means; use `fraud models train`"
        )
    uri = f"models:/{found.name}/{found.version}"
    return ModelRef(
        found.name, str(found.version), uri, found.tags["digest"], tuple(found.tags["features"].split(","))
    )


def _cached(ref: ModelRef, tracking_uri: str, cache_dir: Path, label: str) -> Path:
    """The local copy with the pinned digest."""
    if not DIGEST.fullmatch(ref.digest):
        # a registry's tag may be a path, and what it names would be discarded
        raise ModelError(f"{label} has no SHA-256 as its digest; use `fraud models train`")
    directory = cache_dir / ref.digest
    if directory.is_dir():
        if artifact.digest(directory) == ref.digest:
            return directory
        _discard(directory)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir, prefix=".copy-") as scratch:
            with tracking.registry(tracking_uri) as client:
                copy = _download(client, ref.name, ref.version, Path(scratch), tracking_uri)
            archives.check_size(copy)
            found = artifact.digest(copy)
            if found != ref.digest:
                raise ModelError(
                    f"{label} has digest {found[:12]}, the rollout pinned {ref.digest[:12]}: its files were "
                    "changed; roll out a version whose files are whole"
                )
            try:
                os.rename(copy, directory)
            except OSError:
                # another loader was first; its copy passed the same check
                if not directory.is_dir():
                    raise
    except OSError as error:
        raise ModelUnavailableError(
            f"{label} cannot be copied to {cache_dir}: {error}; free or name another directory"
        ) from error
    return directory


def _discard(directory: Path) -> None:
    """Move a damaged copy out of the way first, so that no loader finds half of it."""
    aside = directory.with_name(f".damaged-{uuid.uuid4().hex}")
    try:
        os.rename(directory, aside)
    except FileNotFoundError:
        return  # another loader discarded it
    shutil.rmtree(aside, ignore_errors=True)


def _download(client: Any, name: str, version: str, into: Path, tracking_uri: str) -> Path:
    import mlflow.artifacts

    source = client.get_model_version_download_uri(name, version)
    return Path(
        mlflow.artifacts.download_artifacts(
            artifact_uri=source, dst_path=str(into), tracking_uri=tracking_uri
        )
    )

"""Registration of models with MLflow, and what the registry knows of each version."""

import json
import math
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models import artifact, estimator_file, tracking
from models.errors import ModelError
from models.feature_bins import FeatureBins
from models.score_histogram import ScoreHistogram
from models.training_record import TrainingRecord

NAME = "card-fraud"
"""Default name of the registered model."""
DIGEST = re.compile("[0-9a-f]{64}")
SCORES_TAG = "training_scores"
"""Tag of a model version: a score histogram as JSON."""


@dataclass(frozen=True)
class ModelRef:
    """One version of a registered model, pinned by content: the object `model` of a rollout event."""

    name: str
    version: str
    uri: str
    """models:/<name>/<version>."""
    digest: str
    """SHA-256 of the artifact's files, 64 hex digits."""
    features: tuple[str, ...]
    """The model's columns in order, each a feature's name:version."""

    def __str__(self) -> str:
        """NAME/VERSION, as commands take it."""
        return f"{self.name}/{self.version}"

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "ModelRef":
        """Read the object `model` of a rollout event; unknown fields are ignored."""
        values = {name: fields[name] for name in ModelRef.__dataclass_fields__}
        return ModelRef(**{**values, "features": tuple(fields["features"])})


def register(
    estimator: Any,
    features: tuple[str, ...],
    golden_rows: np.ndarray,
    typical: np.ndarray,
    tracking_uri: str,
    *,
    record: TrainingRecord | None = None,
    scores: np.ndarray | None = None,
    bins: FeatureBins | None = None,
    label_delay_ms: int | None = None,
    name: str = NAME,
) -> ModelRef:
    """Log a fitted classifier with MLflow and register it as the next version of `name`.

    The arguments that are not explained here are those of `artifact.write`.

    Args:
        tracking_uri: address of MLflow; `sqlite:////directory/mlflow.db` needs no server.
        record: record of the training, logged to the run; its model card is the version's description.
        scores: float64[n], evaluation scores; the version keeps their histogram (`training_scores`) for
            guards on drift, the model's files keep their quantiles.

    Raises:
        ModelError: the registry cannot be reached, or a check of `artifact.write` fails.
    """
    import sklearn
    import skops.io

    record = record or TrainingRecord()
    with tempfile.TemporaryDirectory() as scratch, tracking.registry(tracking_uri, creates=True) as client:
        import mlflow.sklearn
        from mlflow.models import infer_signature

        extra = artifact.write(
            Path(scratch), estimator, features, golden_rows, typical, scores, bins, label_delay_ms
        )
        with mlflow.start_run(experiment_id=tracking.experiment_id(client, tracking_uri)):
            record.log()
            logged = mlflow.sklearn.log_model(
                estimator,
                name=name,
                signature=infer_signature(golden_rows, estimator.predict_proba(golden_rows)),
                pyfunc_predict_fn="predict_proba",
                # given, because MLflow would start a second Python to infer them
                pip_requirements=[f"scikit-learn=={sklearn.__version__}", f"numpy=={np.__version__}"],
                serialization_format="skops",
                # only for users who load the model with MLflow: our processes use `estimator_file`
                skops_trusted_types=skops.io.get_untrusted_types(data=estimator_file.dumps(estimator)),
                extra_files=[str(path) for path in extra],
            )
        # not mlflow.register_model: it prints
        if not client.search_registered_models(_named(name)):
            client.create_registered_model(name)
        version = client.create_model_version(
            name,
            logged.model_uri,
            logged.run_id,
            tags={"features": ",".join(features), **_score_tag(scores)},
            model_id=logged.model_id,
            description=record.card or None,
        ).version
        with tempfile.TemporaryDirectory() as back:
            # the digest is that of the downloaded files, because loaders will see these
            digest = artifact.digest(download(client, name, str(version), Path(back), tracking_uri))
        client.set_model_version_tag(name, version, "digest", digest)
    return ModelRef(name, str(version), f"models:/{name}/{version}", digest, features)


def find(name: str, version: str, tracking_uri: str) -> ModelRef:
    """Return the reference of a version that `register` wrote.

    Raises:
        ModelError: there is no such version, it was registered by other means, or the registry does not
            answer.
    """
    with tracking.registry(tracking_uri, f"model {name}/{version}") as client:
        return _ref(client.get_model_version(name, version))


def versions(tracking_uri: str, name: str = NAME) -> list[tuple[ModelRef, dict[str, float]]]:
    """List the versions that `register` wrote, with the metrics of their runs, newest first."""
    named = _named(name)
    with tracking.registry(tracking_uri) as client:
        registered = [
            version
            for version in client.search_model_versions(named)
            if "features" in version.tags and DIGEST.fullmatch(version.tags.get("digest", ""))
        ]
        registered.sort(key=lambda version: int(version.version), reverse=True)
        return [
            (_ref(version), _metrics(client, version.run_id) if version.run_id else {})
            for version in registered
        ]


def _metrics(client: Any, run_id: str) -> dict[str, float]:
    """Return the finite metrics of a run; none if it was deleted for good (`mlflow gc`)."""
    from mlflow.exceptions import MlflowException

    try:
        metrics = client.get_run(run_id).data.metrics
    except MlflowException as fault:
        if fault.error_code == "RESOURCE_DOES_NOT_EXIST":
            return {}
        raise
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _named(name: str) -> str:
    """Return MLflow's filter for a name."""
    if not name.isprintable() or set(name) & set("'\"`\\"):
        raise ModelError(f"{name!r} is no name of a model: leave out quotes and backslashes")
    return f"name = '{name}'"


def point(alias: str, ref: ModelRef, tracking_uri: str) -> None:
    """Point an alias of the registered model to a version; decisions do not depend on aliases.

    Raises:
        ModelError: the registry does not answer, or has no such version.
    """
    with tracking.registry(tracking_uri, f"model {ref}") as client:
        client.set_registered_model_alias(ref.name, alias, ref.version)


def training_scores(ref: ModelRef, tracking_uri: str) -> dict[str, Any] | None:
    """Return the histogram `{le, counts, sum}` of the scores given to `register`; None without scores.

    The histogram is a tag. The digest does not cover tags, so the histogram may change later; therefore the
    desk copies it into the event `proposed` if the rollout has a guard on drift that gives no histogram.

    Raises:
        ModelError: the tag is damaged.
    """
    with tracking.registry(tracking_uri, f"model {ref}") as client:
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


def _score_tag(scores: np.ndarray | None) -> dict[str, str]:
    if scores is None:
        return {}
    return {SCORES_TAG: json.dumps(ScoreHistogram.of(scores).to_json())}


def _ref(version: Any) -> ModelRef:
    name, number, tags = version.name, version.version, version.tags
    if not {"digest", "features"} <= set(tags):
        raise ModelError(f"model {name} {number} was registered by other means; use `fraud models train`")
    return ModelRef(
        name, str(number), f"models:/{name}/{number}", tags["digest"], tuple(tags["features"].split(","))
    )


def download(client: Any, name: str, version: str, into: Path, tracking_uri: str) -> Path:
    """Download the files of a version into a directory; return the directory of the model's files."""
    import mlflow.artifacts

    source = client.get_model_version_download_uri(name, version)
    return Path(
        mlflow.artifacts.download_artifacts(
            artifact_uri=source, dst_path=str(into), tracking_uri=tracking_uri
        )
    )

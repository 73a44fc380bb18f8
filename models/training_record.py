"""The record of a training run in MLflow, beside the model: parameters, metrics, curves, model card."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.release import sources_digest, version


@dataclass(frozen=True)
class TrainingRecord:
    """Everything that is logged of one training run."""

    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts by file name."""
    card: str = ""
    """Model card in Markdown, also the description of the model version."""

    def log(self) -> None:
        """Log to the active MLflow run."""
        import mlflow

        mlflow.log_params(dict(self.params))
        mlflow.log_metrics(dict(self.metrics))
        for name, text in self.files.items():
            mlflow.log_text(text, name)
        if self.card:
            mlflow.log_text(self.card, "model-card.md")


def code_version() -> str:
    """Return the release, and a digest of the code that computes features and fits models."""
    return f"{version()}+{sources_digest(('feature_store', 'models'))[:12]}"


def training_set_digest(x: NDArray[np.float64], fraud: NDArray[np.bool_]) -> str:
    """Return the SHA-256 (hex) of features, shape (n, f), and outcomes, shape (n,)."""
    sha256 = hashlib.sha256(repr(x.shape).encode())
    sha256.update(x.tobytes())
    sha256.update(fraud.tobytes())
    return sha256.hexdigest()

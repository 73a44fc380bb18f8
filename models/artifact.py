"""What a model's directory holds besides MLflow's own files, and how it is trusted.

`extra_files/scorer.json` says what the model expects, `extra_files/scorer.npz` holds the compiled trees (or
the reference values of another estimator) and golden rows with their scores. Both are part of the artifact,
so its digest covers them; a worker loads from them without MLflow and, for trees, without scikit-learn.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models import trees
from models.errors import ModelError
from models.scoring import Classifier, Estimator

FORMAT = 1
EXTRA = "extra_files"
"""Where MLflow puts the files that are added to a model."""
MODEL_FILE = "model.skops"
GOLDEN_TOLERANCE = 1e-9
"""Golden scores may differ this much: another processor's exp() may round the last bit differently."""


@dataclass(frozen=True)
class Content:
    """A model as its files describe it."""

    features: tuple[str, ...]
    """name:version of each column of the model's input."""
    classifier: Classifier
    """Trees, or an Estimator."""
    golden_rows: np.ndarray
    """float64[k, f]."""
    golden_scores: np.ndarray
    """float64[k]."""

    def check_golden(self, scores: np.ndarray, what: str) -> None:
        """Raise ModelError unless `scores` of the golden rows are the recorded ones."""
        if scores.shape != self.golden_scores.shape or not np.allclose(
            scores, self.golden_scores, rtol=0.0, atol=GOLDEN_TOLERANCE
        ):
            raise ModelError(
                f"{what} does not reproduce its golden scores; check library versions, or register again"
            )


def write(
    directory: Path,
    estimator: Any,
    features: tuple[str, ...],
    golden_rows: np.ndarray,
    typical: np.ndarray,
) -> list[Path]:
    """Write the extra files of a model into a directory.

    Args:
        directory: exists, empty.
        estimator: fitted classifier with predict_proba.
        features: of its columns, name:version.
        golden_rows: float64[k, f] to be scored at every later check.
        typical: float64[f], training medians.

    Returns:
        The files' paths.

    Raises:
        ModelError: the scores of a row depend on the rows around it.
    """
    rows = np.ascontiguousarray(golden_rows, dtype=np.float64)
    arrays: dict[str, np.ndarray] = {"typical": np.asarray(typical, dtype=np.float64)}
    classifier: Classifier
    kind = "trees" if trees.can_compile(estimator) else "estimator"
    if kind == "trees":
        classifier = trees.compile_trees(estimator)
        arrays |= {f"trees.{name}": array for name, array in classifier.arrays().items()}
    else:
        classifier = Estimator(estimator, arrays["typical"])
    scores = classifier.score(rows)
    one_by_one = np.concatenate([classifier.score(rows[i : i + 1]) for i in range(len(rows))])
    if not np.array_equal(scores, one_by_one, equal_nan=True) or not np.isfinite(scores).all():
        raise ModelError(
            "scores are not finite or depend on other rows; train a classifier that scores each row alone"
        )
    arrays |= {"golden.rows": rows, "golden.scores": scores}
    description = {
        "format": FORMAT,
        "kind": kind,
        "features": list(features),
        "trusted_types": [] if kind == "trees" else untrusted_types(estimator),
    }
    paths = [directory / "scorer.json", directory / "scorer.npz"]
    paths[0].write_text(json.dumps(description, indent=1) + "\n")
    np.savez(paths[1], **arrays)  # type: ignore[arg-type]
    return paths


def read(directory: Path) -> Content:
    """Read a model's directory whose digest has been verified.

    Raises:
        ModelError: it was not written by `write`, or by a newer one.
    """
    try:
        description = json.loads((directory / EXTRA / "scorer.json").read_text())
        with np.load(directory / EXTRA / "scorer.npz", allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        if description["format"] != FORMAT:
            raise ModelError(
                f"model format {description['format']} is not {FORMAT}; use the release that registered it"
            )
        classifier: Classifier
        if description["kind"] == "trees":
            parts = {name[6:]: array for name, array in arrays.items() if name.startswith("trees.")}
            classifier = trees.Trees(**parts)
        else:
            classifier = Estimator(_estimator(directory, description["trusted_types"]), arrays["typical"])
        return Content(
            tuple(description["features"]),
            classifier,
            arrays["golden.rows"],
            arrays["golden.scores"],
        )
    except ModelError:
        raise
    except Exception as error:  # whatever a foreign or newer artifact makes its readers raise
        raise ModelError(
            f"model files cannot be read ({type(error).__name__}: {error}); use `fraud models train`"
        ) from error


def untrusted_types(estimator: Any) -> list[str]:
    """The types that skops must be told to trust to read this estimator again."""
    import skops.io

    return sorted(skops.io.get_untrusted_types(data=skops.io.dumps(estimator)))


def _estimator(directory: Path, trusted: list[str]) -> Any:
    import skops.io

    return skops.io.load(directory / MODEL_FILE, trusted=trusted)


def digest(directory: Path) -> str:
    """SHA-256 over all files: relative path, length and content of each, in the paths' sorted order."""
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*"), key=lambda path: path.relative_to(directory).as_posix()):
        if path.is_file():
            content = path.read_bytes()
            total.update(f"{path.relative_to(directory).as_posix()}\x00{len(content)}\x00".encode())
            total.update(content)
    return total.hexdigest()

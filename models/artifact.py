"""The extra files of a model's artifact, and the checks that make them safe to load.

`extra_files/scorer.json` holds the format's number, the kind of classifier, the names and versions of the
input columns, and the label delay. `extra_files/scorer.npz` holds the training medians of the columns; golden
rows, which are scored at every load, with their recorded scores; quantiles of the evaluation scores; the
features' training distribution; and, for a HistGradientBoostingClassifier that `trees.can_compile` accepts,
the compiled trees. Any other estimator is read from `model.skops`. All these files are part of the artifact,
so its digest covers them. A worker loads a model without MLflow and, if its trees are compiled, without
scikit-learn.

The digest proves that these are the files that a rollout pins. It does not prove that they are harmless:
every user who may register models can write them. So the files name no code to run, and every number that
compiled code uses as an index is checked: trees by `tree_layout`, other estimators by `estimator_file`.
"""

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models import archives, estimator_file, trees
from models.errors import ModelError
from models.feature_bins import FeatureBins
from models.percentiles import LEVELS, quantiles
from models.rounding import DECIMALS
from models.scoring import Classifier, Estimator
from models.trees import Trees

FORMAT = 1
EXTRA = "extra_files"
"""Directory in which MLflow puts the extra files of a model."""
MODEL_FILE = "model.skops"
GOLDEN_TOLERANCE = 1.5 / 10**DECIMALS
"""Allowed difference of golden scores: one step of rounding, because half a step may lie between what two
processors compute."""
MOST_GOLDEN_ROWS = 10_000
"""Limit of golden rows: they are scored at every load, while transactions wait."""


@dataclass(frozen=True)
class Content:
    """Content of a model's extra files."""

    features: tuple[str, ...]
    """name:version of each column of the model's input."""
    classifier: Trees | Estimator
    golden_rows: np.ndarray
    """float64[k, f]."""
    golden_scores: np.ndarray
    """float64[k]."""
    quantiles: np.ndarray | None = None
    """`percentiles.quantiles` of the evaluation scores; None if not stored."""
    bins: FeatureBins | None = None
    """Training distribution of the features; None if not stored."""
    label_delay_ms: int | None = None
    """Label delay of the training set's merchant label features; None if it is not stored."""

    def __post_init__(self) -> None:
        width, golden = len(self.features), self.golden_rows
        rows = len(golden)
        if not (
            golden.dtype == self.golden_scores.dtype == np.float64
            and golden.shape == (rows, width)
            and self.golden_scores.shape == (rows,)
            and 0 < rows <= MOST_GOLDEN_ROWS
            and self.classifier_width == width
            and (self.bins is None or len(self.bins.trained) == width)
        ):
            raise ModelError(
                "the model's columns, classifier, golden rows or bins do not match; train and register again"
            )
        least = self.quantiles
        if least is not None and not (
            least.dtype == np.float64 and least.shape == LEVELS.shape and (np.diff(least) >= 0).all()
        ):
            raise ModelError(
                "the model's quantiles do not ascend or do not match the percentiles; "
                "train and register it again"
            )

    @property
    def classifier_width(self) -> int:
        """Number of columns that the classifier takes."""
        classifier = self.classifier
        return len(classifier.typical) if isinstance(classifier, Estimator) else int(classifier.width[0])

    def check_golden(self, score: Callable[[np.ndarray], np.ndarray], label: str) -> None:
        """Raise ModelError unless `score` reproduces the recorded scores of the golden rows."""
        try:
            scores = score(self.golden_rows)
        except Exception as error:  # a foreign model may raise anything
            raise ModelError(
                f"{label} cannot score its golden rows ({type(error).__name__}: {error}); register it again"
            ) from error
        if not _alike(scores, self.golden_scores):
            raise ModelError(
                f"{label} does not reproduce its golden scores; check library versions, or register again"
            )


def write(
    directory: Path,
    estimator: Any,
    features: tuple[str, ...],
    golden_rows: np.ndarray,
    typical: np.ndarray,
    evaluation_scores: np.ndarray | None = None,
    bins: FeatureBins | None = None,
    label_delay_ms: int | None = None,
) -> list[Path]:
    """Write the extra files of a model into a directory.

    Args:
        directory: an existing, empty directory.
        estimator: fitted classifier with predict_proba.
        features: name:version of each column.
        golden_rows: float64[k, f], scored at every load.
        typical: float64[f], training medians.
        evaluation_scores: float64[n], scores of rows that the model was not fitted to; alerts derive
            percentiles from them.
        bins: training distribution of the features, to measure feature drift.
        label_delay_ms: label delay of the merchant label features; None without them.

    Returns:
        The files' paths.

    Raises:
        ModelError: workers could not load the model, their scores would differ from the estimator's, the
            score of a row depends on the other rows, a score or contribution is not finite, or columns,
            golden rows and bins do not match.
    """
    rows = np.ascontiguousarray(golden_rows, dtype=np.float64)
    arrays: dict[str, np.ndarray] = {"typical": np.asarray(typical, dtype=np.float64)}
    classifier: Trees | Estimator
    kind = "trees" if trees.can_compile(estimator) else "estimator"
    if kind == "trees":
        classifier = trees.compile_trees(estimator)
        arrays |= {f"trees.{name}": array for name, array in classifier.arrays().items()}
    else:
        loaded = estimator_file.read(io.BytesIO(estimator_file.dumps(estimator)))
        classifier = Estimator(loaded, arrays["typical"])
    scores = check_answers(classifier, rows)
    if not _alike(scores, np.asarray(estimator.predict_proba(rows))[:, 1]):
        raise ModelError("workers would not score as the estimator does; report it with the estimator's type")
    Content(features, classifier, rows, scores, bins=bins)  # checks that they match
    arrays |= {"golden.rows": rows, "golden.scores": scores}
    if evaluation_scores is not None:
        arrays["quantiles"] = quantiles(evaluation_scores)
    if bins is not None:
        arrays |= {"bins.upper": bins.upper, "bins.trained": bins.trained}
    description: dict[str, Any] = {"format": FORMAT, "kind": kind, "features": list(features)}
    if label_delay_ms is not None:
        description["label_delay_ms"] = label_delay_ms
    paths = [directory / "scorer.json", directory / "scorer.npz"]
    paths[0].write_text(json.dumps(description, indent=1) + "\n")
    np.savez(paths[1], **arrays)  # type: ignore[arg-type]
    return paths


def check_answers(classifier: Classifier, rows: np.ndarray) -> np.ndarray:
    """Score rows; check that scores and explanations are finite, and that no score depends on other rows.

    Returns:
        Scores, float64[k].

    Raises:
        ModelError: a check fails.
    """
    scores = classifier.score(rows)
    one_by_one = np.concatenate([classifier.score(rows[i : i + 1]) for i in range(len(rows))])
    if not np.array_equal(scores, one_by_one) or not np.isfinite(scores).all():
        raise ModelError(
            "scores are not finite or depend on other rows; train a classifier that scores each row alone"
        )
    if not np.isfinite(classifier.explain(rows)).all():
        raise ModelError("scores cannot be explained: contributions are not finite; train another classifier")
    return scores


def _alike(scores: np.ndarray, others: np.ndarray) -> bool:
    return scores.shape == others.shape and np.allclose(scores, others, rtol=0.0, atol=GOLDEN_TOLERANCE)


def read(directory: Path) -> Content:
    """Read the files in a model's directory; the caller has verified the directory's digest.

    Raises:
        ModelError: the files were not written by `write`, were written by a newer release, or are too large.
    """
    try:
        description = json.loads((directory / EXTRA / "scorer.json").read_text())
        with archives.opened(directory / EXTRA / "scorer.npz") as archive:
            arrays = archives.arrays(archive)
        if description["format"] != FORMAT:
            raise ModelError(
                f"model format {description['format']} is not {FORMAT}; use the release that registered it"
            )
        classifier: Trees | Estimator
        if description["kind"] == "trees":
            parts = {name[6:]: array for name, array in arrays.items() if name.startswith("trees.")}
            classifier = Trees(**parts)
        else:
            classifier = Estimator(estimator_file.read(directory / MODEL_FILE), arrays["typical"])
        return Content(
            tuple(description["features"]),
            classifier,
            arrays["golden.rows"],
            arrays["golden.scores"],
            arrays.get("quantiles"),
            _bins(arrays),
            description.get("label_delay_ms"),
        )
    except ModelError:
        raise
    except Exception as error:  # readers may raise anything on a foreign or newer artifact
        raise ModelError(
            f"model files cannot be read ({type(error).__name__}: {error}); use `fraud models train`"
        ) from error


def _bins(arrays: dict[str, np.ndarray]) -> FeatureBins | None:
    if "bins.upper" not in arrays:
        return None  # registered without bins: its drift is not measured
    trained = arrays["bins.trained"]
    return FeatureBins(arrays["bins.upper"], trained, np.arange(len(trained), dtype=np.int64))


def digest(directory: Path) -> str:
    """Return the SHA-256 over all files: relative path, length and content of each, sorted by path."""
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*"), key=lambda path: path.relative_to(directory).as_posix()):
        if path.is_file():
            content = path.read_bytes()
            total.update(f"{path.relative_to(directory).as_posix()}\x00{len(content)}\x00".encode())
            total.update(content)
    return total.hexdigest()

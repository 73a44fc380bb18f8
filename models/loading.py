"""Loading of the models that rollouts name.

A rollout pins a model by the digest of its files. A loader copies them once into a local directory named by
the digest, verifies the digest at every load, and needs MLflow only for the copy.
"""

import os
import shutil
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

from feature_store import catalogue
from models import archives, artifact, tracking
from models.errors import ModelError, ModelUnavailableError, naming
from models.registry import DIGEST, ModelRef, download
from models.scoring import Scorer


def load(ref: ModelRef, tracking_uri: str, cache_dir: Path) -> Scorer:
    """Load the model of a rollout, ready to score.

    The first load copies the artifact to `cache_dir/<digest>`; later loads, also in other processes, need no
    MLflow. A damaged copy is replaced.

    Args:
        cache_dir: local directory, created if missing; many processes may share it.

    Raises:
        ModelUnavailableError: the model's files cannot be fetched now, or cannot be stored in `cache_dir`.
        ModelError: the digest is no SHA-256; the files are unreadable, too large or not those that the
            rollout pinned; the model was trained on other features than the rollout names; or it does not
            reproduce its golden scores.
    """
    return _loaded(ref, tracking_uri, cache_dir)[0]


def mark_used(directory: Path) -> None:
    """Set the time of a local copy; a start of the job removes copies that were not used for long."""
    with suppress(OSError):  # it was removed, or is another user's
        os.utime(directory)


def verify(ref: ModelRef, tracking_uri: str, cache_dir: Path) -> Scorer:
    """Verify a model before a rollout: `load` succeeds, and the scores pass the checks of registration.

    Arguments and errors as for `load`; the error's `check` names the failed check: files, trust, features,
    golden or answers.
    """
    scorer, content = _loaded(ref, tracking_uri, cache_dir)
    # registration made the same check, but on another machine
    with naming("answers"):
        artifact.check_answers(scorer, content.golden_rows)
    return scorer


def _loaded(ref: ModelRef, tracking_uri: str, cache_dir: Path) -> tuple[Scorer, artifact.Content]:
    """Load a model and the content of its files; arguments and errors as for `load`."""
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
    scorer = Scorer(
        ref.name,
        ref.version,
        ref.digest,
        names,
        content.classifier,
        content.quantiles,
        content.bins,
        content.label_delay_ms,
    )
    with naming("golden"):
        content.check_golden(scorer.score, label)
    return scorer, content


def _cached(ref: ModelRef, tracking_uri: str, cache_dir: Path, label: str) -> Path:
    """Return the local copy with the pinned digest; download it if necessary."""
    if not DIGEST.fullmatch(ref.digest):
        # the digest comes from a tag in MLflow, which could hold a path; `_discard` would delete its files
        raise ModelError(f"{label} has no SHA-256 as its digest; use `fraud models train`")
    directory = cache_dir / ref.digest
    if directory.is_dir():
        mark_used(directory)
        if artifact.digest(directory) == ref.digest:
            return directory
        _discard(directory)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir, prefix=".copy-") as scratch:
            with tracking.registry(tracking_uri, f"model {ref}") as client:
                copy = download(client, ref.name, ref.version, Path(scratch), tracking_uri)
            archives.check_size(copy)
            actual = artifact.digest(copy)
            if actual != ref.digest:
                raise ModelError(
                    f"{label} has digest {actual[:12]}, the rollout pinned {ref.digest[:12]}: its files were "
                    "changed; roll out a version whose files are whole"
                )
            try:
                os.rename(copy, directory)
            except OSError:
                # another loader was first; its copy passed the same check
                if not directory.is_dir():
                    raise
    except ModelError:
        raise
    except OSError as error:
        raise ModelUnavailableError(
            f"{label} cannot be copied to {cache_dir}: {error}; free space, or name another directory"
        ) from error
    except Exception as error:  # a store's library is missing, or a proxy answers instead of the registry
        raise ModelUnavailableError(
            f"{label} cannot be fetched ({type(error).__name__}: {error}); check the registry, and that this "
            "machine has library (for S3: boto3), address and credentials of its artifact store"
        ) from error
    return directory


def _discard(directory: Path) -> None:
    """Remove a damaged copy; rename it first, so that no loader sees a half-deleted directory."""
    aside = directory.with_name(f".damaged-{uuid.uuid4().hex}")
    try:
        os.rename(directory, aside)
    except FileNotFoundError:
        return  # another loader discarded it
    shutil.rmtree(aside, ignore_errors=True)

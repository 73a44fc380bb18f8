"""A registry that keeps the files of models in S3."""

import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import numpy as np
import pytest
from harness import object_store
from harness.object_store import FAILURES, ObjectStore
from harness.tools import needs
from mlflow.store.artifact import s3_artifact_repo
from sklearn.ensemble import HistGradientBoostingClassifier

from models import tracking
from models.errors import ModelUnavailableError
from models.loading import load
from models.registry import ModelRef, register
from models.training_record import TrainingRecord

pytestmark = [pytest.mark.integration, pytest.mark.without_stack, needs("moto_server")]

FEATURES = ("a:1", "b:1")
ROWS = np.random.default_rng(0).normal(size=(400, 2))


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store.running() as running:
        running.calm()
        yield running


@pytest.fixture(scope="module")
def uri(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> str:
    address = f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"
    with tracking.registry(address, creates=True) as client:
        client.create_experiment(tracking.EXPERIMENT, artifact_location="s3://bucket/models")
    return address


@pytest.fixture(scope="module")
def ref(uri: str) -> ModelRef:
    estimator = HistGradientBoostingClassifier(max_iter=5, random_state=0)
    estimator.fit(ROWS, ROWS[:, 0] > 0)
    return register(
        estimator, FEATURES, ROWS[:40], np.median(ROWS, axis=0), uri, record=TrainingRecord(metrics={})
    )


@pytest.fixture(autouse=True)
def undone(store: ObjectStore) -> Iterator[None]:
    """End a test's faults; MLflow keeps clients for five minutes, with their credentials."""
    yield
    store.calm()
    s3_artifact_repo._cached_get_s3_client.cache_clear()


def test_a_model_is_registered_and_loaded(
    ref: ModelRef, store: ObjectStore, uri: str, tmp_path: Path
) -> None:
    assert store.objects("models/")
    assert load(ref, uri, tmp_path).score(ROWS).shape == (400,)


def test_a_model_is_loaded_over_a_failing_network(
    ref: ModelRef, store: ObjectStore, uri: str, tmp_path: Path
) -> None:
    store.fail(FAILURES)
    load(ref, uri, tmp_path)


def test_missing_credentials_are_one_clear_error(
    ref: ModelRef, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps credentials, too
    s3_artifact_repo._cached_get_s3_client.cache_clear()
    with pytest.raises(
        ModelUnavailableError, match=r"cannot be fetched .*locate credentials.* credentials of"
    ):
        load(ref, uri, tmp_path)


def test_a_refused_access_is_one_clear_error(
    ref: ModelRef, store: ObjectStore, uri: str, tmp_path: Path
) -> None:
    store.denies_reading = True
    with pytest.raises(ModelUnavailableError, match=r"403.*access to the store of its files"):
        load(ref, uri, tmp_path)


def test_a_missing_package_is_one_clear_error(
    ref: ModelRef, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    s3_artifact_repo._cached_get_s3_client.cache_clear()
    with pytest.raises(ModelUnavailableError, match=r"cannot be fetched .*boto3.*library \(for S3: boto3\)"):
        load(ref, uri, tmp_path)

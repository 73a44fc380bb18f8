"""Retries for a model that cannot be loaded, and the messages about it."""

import logging
from pathlib import Path

import pytest
from harness.job_world import model_ref

from feature_store.catalogue import NAMES
from models import tracking
from models.errors import ModelMissingError, ModelUnavailableError
from streaming_job.group import processor

pytestmark = [pytest.mark.integration, pytest.mark.without_stack]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracking.load()  # importing mlflow takes longer than the patience set here
    monkeypatch.setattr(processor, "MODEL_PATIENCE_S", 2.0)
    monkeypatch.setattr(processor, "MODEL_RETRY_S", 0.1)


def test_a_registry_that_does_not_answer_is_retried_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(ModelUnavailableError, match="registry failed"):
        processor.load_patiently(model_ref(), "http://127.0.0.1:1", tmp_path, NAMES)
    messages = [
        record.getMessage() for record in caplog.records if "no decisions until" in record.getMessage()
    ]
    assert len(messages) >= 2
    assert "model card-fraud 1" in messages[0]


def test_a_missing_version_is_not_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with tracking.registry(uri, creates=True) as client:
        client.search_registered_models()
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ModelMissingError, match="has no model card-fraud/99"),
    ):
        processor.load_patiently(model_ref("99"), uri, tmp_path / "models", NAMES)
    assert not [record for record in caplog.records if "no decisions until" in record.getMessage()]

"""Waits of a task, which a stop request ends."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from feature_store.errors import FraudError
from models.errors import ModelUnavailableError
from models.registry import ModelRef
from streaming_job.group import processor
from streaming_job.log.end_offsets import with_retries
from streaming_job.runtime import pauses
from streaming_job.runtime.epochs import Epoch, EpochServer
from streaming_job.runtime.failures import classify
from streaming_job.runtime.pauses import StoppedError

pytestmark = pytest.mark.unit


def unanswered() -> int:
    raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def without_registry(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Any:
    def load(*_: object) -> None:
        raise ModelUnavailableError("the model registry failed: connection refused")

    monkeypatch.setattr(processor.loading, "load", load)
    ref = ModelRef("card-fraud", "1", "0" * 64, "run", ())
    return processor.load_patiently(ref, "http://127.0.0.1:9", directory, ())


def test_waits_for_brokers_and_registry_end_soon_after_a_stop_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stops: list[float] = []
    waits: list[Callable[[], Any]] = [
        lambda: with_retries(unanswered),
        lambda: without_registry(monkeypatch, tmp_path),
        lambda: pauses.pause(60),
    ]
    for wait in waits:
        begun = time.monotonic()
        told = threading.Event()
        threading.Timer(0.2, told.set).start()
        with pytest.raises(StoppedError), pauses.ended_by(told.is_set, 0.3):
            wait()
        stops.append(time.monotonic() - begun)
    assert min(stops) >= 0.5
    assert max(stops) < 5


def test_without_a_stop_request_a_pause_lasts_its_time() -> None:
    begun = time.monotonic()
    pauses.pause(0.1)  # outside a task
    with pauses.ended_by(lambda: False):
        pauses.pause(0.1)
        pauses.look()
    assert 0.2 <= time.monotonic() - begun < 5


def test_an_answer_within_the_grace_is_still_taken() -> None:
    answers = iter([unanswered, unanswered, lambda: 7])
    with pauses.ended_by(lambda: True, 60.0):
        assert with_retries(lambda: next(answers)()) == 7


def test_tasks_learn_of_a_stop_request_even_after_their_epoch(wait_for: Callable[..., object]) -> None:
    stop: list[bool] = []
    server = EpochServer("127.0.0.1", 0, lambda: bool(stop), 2, must_stop=lambda: bool(stop))
    try:
        server.begin(7, 0.1)
        with Epoch(server.address, 7) as epoch:
            wait_for(epoch.is_over)
            assert not epoch.must_stop()
            stop.append(True)
            wait_for(epoch.must_stop)
        with Epoch(server.address, 7) as repeated:
            wait_for(repeated.must_stop)
            assert repeated.is_over()
    finally:
        server.close()


def test_a_task_whose_driver_is_gone_must_stop(wait_for: Callable[..., object]) -> None:
    server = EpochServer("127.0.0.1", 0, lambda: False)
    server.begin(7, 60.0)
    with Epoch(server.address, 7) as epoch:
        wait_for(lambda: len(server._tasks) == 1)
        assert not epoch.must_stop()
        server.close()
        wait_for(epoch.must_stop)


def test_the_error_is_recognised_in_what_spark_reports() -> None:
    text = "PythonException:\n streaming_job.runtime.pauses.StoppedError: the task gives up\n"
    fault: FraudError = classify(RuntimeError(text))
    assert isinstance(fault, StoppedError)

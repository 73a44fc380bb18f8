"""The examples in docstrings give the results that they show."""

import doctest
import importlib

import pytest

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "module",
    [
        "models.guards.betting",
        "models.policy",
        "models.rollouts.membership",
        "models.rounding",
        "streaming_job.log.partitioner",
        "streaming_job.progress.histogram",
    ],
)
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted
    assert not result.failed

"""The progress record with which a key group continues: the topic's, or the copy in its state."""

import json
from typing import Any

import pytest

from streaming_job.progress.last_record import newest, positions, require_labels, set_aside
from streaming_job.runtime.checkpoint_errors import CheckpointError

pytestmark = pytest.mark.unit


def record(commit_id: int) -> dict[str, Any]:
    parts = [
        {"topic": topic, "partition": 1, "end_offset": 10 * commit_id}
        for topic in ("transactions", "profiles")
    ]
    return {"commit_id": commit_id, "partitions": parts, "rollouts_set_aside": {"4": "model_refused"}}


@pytest.mark.parametrize(
    ("on_topic", "in_state", "counts"),
    [
        (None, None, None),  # a new group
        (3, None, 3),
        (3, 2, 3),  # after a crash
        (3, 3, 3),  # after a stop
        (None, 3, 3),  # after a stop, and the topic was emptied
        (2, 3, 3),  # after a stop, and the topic has lost its end
    ],
)
def test_the_newer_one_counts(on_topic: int | None, in_state: int | None, counts: int | None) -> None:
    result = newest(
        None if on_topic is None else record(on_topic),
        None if in_state is None else json.dumps(record(in_state)),
    )
    assert result == (None if counts is None else record(counts))


def test_a_record_has_positions_and_rollouts_set_aside() -> None:
    assert positions(record(2)) == {("transactions", 1): 20, ("profiles", 1): 20}
    assert set_aside(record(2)) == {4: "model_refused"}
    assert (positions(None), set_aside(None)) == ({}, {})


def test_a_job_with_merchant_facts_needs_the_last_record() -> None:
    require_labels(None, 0)
    require_labels(record(3), 3)
    with pytest.raises(CheckpointError, match=r"written 4 .* has number 3, .*another job id"):
        require_labels(record(3), 4)
    with pytest.raises(CheckpointError, match=r"has number 0, "):
        require_labels(None, 4)

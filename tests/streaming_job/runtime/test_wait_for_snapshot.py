"""Which last record of a partition shows that Debezium's first snapshot is over."""

import json
from typing import Any

import pytest

from streaming_job.runtime.wait_for_snapshot import ends_wait

pytestmark = pytest.mark.unit


def row(op: str, snapshot: Any) -> bytes:
    return json.dumps({"op": op, "after": {}, "source": {"snapshot": snapshot}}).encode()


@pytest.mark.parametrize(
    "mark", ["first", "first_in_data_collection", "true", True, "last_in_data_collection"]
)
def test_a_row_of_the_snapshot_that_is_not_its_last_does_not(mark: Any) -> None:
    assert not ends_wait(row("r", mark))


@pytest.mark.parametrize(
    "value",
    [
        row("r", "last"),
        row("r", "incremental"),  # Debezium reads in passing only while it follows changes
        row("c", "false"),
        row("u", None),
        row("d", False),
        None,  # a tombstone follows a delete
        b'{"op": "r", "after": {}}',  # of a loader that is not Debezium: there is nothing to wait for
        b"not json",
    ],
)
def test_its_last_row_and_whatever_comes_after_it_do(value: bytes | None) -> None:
    assert ends_wait(value)

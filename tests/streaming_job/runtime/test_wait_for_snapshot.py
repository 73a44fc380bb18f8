"""Whether the last record of a partition shows that Debezium's first snapshot has ended."""

import json
from typing import Any

import pytest

from streaming_job.runtime.wait_for_snapshot import ends_wait

pytestmark = pytest.mark.unit


def row(op: str, snapshot: Any) -> bytes:
    return json.dumps({"op": op, "after": {}, "source": {"snapshot": snapshot}}).encode()


@pytest.mark.parametrize("mark", ["first", "first_in_data_collection", "true", True])
def test_a_row_before_the_last_of_the_snapshot_does_not_end_it(mark: Any) -> None:
    assert not ends_wait(row("r", mark))


@pytest.mark.parametrize(
    "value",
    [
        row("r", "last"),
        row("r", "last_in_data_collection"),  # the connector reads other tables, too
        row("r", "incremental"),  # Debezium makes incremental snapshots only while it follows changes
        row("c", "false"),
        row("u", None),
        row("d", False),
        None,  # a tombstone follows a delete
        b'{"op": "r", "after": {}}',  # written by another loader than Debezium: no snapshot is awaited
        b"not json",
    ],
)
def test_the_last_row_and_any_later_record_end_it(value: bytes | None) -> None:
    assert ends_wait(value)

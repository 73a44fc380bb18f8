"""What `fraud labels show` prints of a record that is no label."""

from types import SimpleNamespace

import pytest

from streaming_job.labels.ledger import _shown

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("value", [b"{", b"[" * 99_999, b"\xff"])
def test_an_unreadable_record_is_shown_by_its_size(value: bytes) -> None:
    message = SimpleNamespace(
        topic=lambda: "labels",
        partition=lambda: 0,
        offset=lambda: 7,
        timestamp=lambda: (1, 8),
        value=lambda: value,
    )
    source = {"topic": "labels", "partition": 0, "offset": 7}
    assert _shown(message) == {"arrival_time": 8, "source": source, "unreadable_bytes": len(value)}

"""Selection of a job's progress records, and of the newest one of each group."""

from typing import Any

import orjson
import pytest

from streaming_job.log.records import Offsets
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.reader import decoded, newest_among, with_feature_counts
from streaming_job.progress.writer import GroupProgress

pytestmark = pytest.mark.unit
ENDS: Offsets = {("tx", 0): 1}


class Sent:
    """A message as returned by the client."""

    def __init__(self, value: Any, key: bytes = b"job") -> None:
        self._value, self._key = value if isinstance(value, bytes) else orjson.dumps(value), key

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value


def progress(key_group: int, commit_id: int) -> dict[str, Any]:
    group = GroupProgress("job", "query", key_group, 2, None, commit_id - 1)
    content: dict[str, Any] = orjson.loads(
        group.record(
            Outcome(),
            epoch=0,
            started_at=1,
            now=2,
            starts={},
            ends=ENDS,
            transactions_topic="tx",
            table_lag={},
        )
    )
    return content


def test_the_last_record_of_each_group_is_the_newest() -> None:
    log: Any = [Sent(progress(*named)) for named in ((0, 1), (1, 8), (0, 2), (0, 3), (1, 9), (0, 4))]
    result, unreadable = newest_among(log, "job")
    assert {group: record["commit_id"] for group, record in result.items()} == {0: 4, 1: 9}
    assert unreadable == 0


def test_feature_counts_are_kept_until_a_newer_record_has_others() -> None:
    counts = [{"feature_counts": {"hour": hour}} for hour in (1, 2)]
    log: Any = [
        Sent({**progress(group, number), **more})
        for group, number, more in (
            (0, 1, counts[0]), (1, 8, {}), (0, 2, counts[1]), (0, 3, {}), (1, 9, {"feature_counts": None}),
        )
    ]  # fmt: skip
    result, _ = newest_among(log, "job")
    assert [result[group]["commit_id"] for group in (0, 1)] == [3, 9]
    assert [result[group]["feature_counts"] for group in (0, 1)] == [{"hour": 2}, None]
    later = with_feature_counts(progress(0, 4), result[0])
    assert (later["commit_id"], later["feature_counts"]) == (4, {"hour": 2})
    assert "feature_counts" not in with_feature_counts(progress(0, 4), None)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"no json",
        {},
        progress(0, 5) | {"totals": {}},
        progress(0, 5) | {"key_group": 2},
        progress(0, 5) | {"commit_id": "5"},
        progress(0, 5) | {"partitions": None},
    ],
)
def test_other_records_are_counted_and_ignored(value: Any) -> None:
    other: Any = Sent(progress(0, 3), key=b"another job")
    message: Any = Sent(value)
    assert decoded(message, "job") is None
    assert decoded(other, "job") is None
    good: Any = Sent(progress(1, 4))
    result, unreadable = newest_among([message, other, good], "job")
    assert (list(result), unreadable) == ([1], 1)

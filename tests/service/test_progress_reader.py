"""The newest progress record of each key group, as the sidecar keeps it up to date."""

from typing import Any

import pytest
from harness.progress_records import SINCE, progress

from service import progress_reader
from service.progress_reader import ProgressReader
from service.settings import ServiceSettings

pytestmark = pytest.mark.unit


def seam(group: int, groups: int, commit_id: int) -> dict[str, Any]:
    """The first record of a successor's group, which continues the totals of a predecessor."""
    takeover = {
        "query_id": "q1", "release": "0.1.0+0123abcd", "key_groups": 2, "commit_id": commit_id, "at": SINCE,
        "asked_by": "test",
    }  # fmt: skip
    return progress(commit_id, group, groups, query_id="q2", takeover=takeover)


@pytest.mark.parametrize("groups", [2, 3])
def test_a_takeover_of_which_a_part_is_read_does_not_take_counts_away(groups: int) -> None:
    reader = ProgressReader(ServiceSettings(bootstrap_servers="none"))
    reader._keep({0: progress(7, 0, 2), 1: progress(7, 1, 2)})
    before = reader.totals.counts["transactions"]
    for group in range(groups):
        reader._keep({group: seam(group, groups, 8)})
        assert reader.totals.counts["transactions"] >= before
        assert {record["query_id"] for record in reader.groups.values()} == {
            "q1" if group < groups - 1 else "q2"
        }
    assert reader.groups.keys() == set(range(groups))


def test_a_successor_with_a_lost_first_record_is_seen_at_its_next_one() -> None:
    reader = ProgressReader(ServiceSettings(bootstrap_servers="none"))
    reader._keep({0: progress(7, 0, 2), 1: progress(7, 1, 2)})
    reader._keep({0: seam(0, 2, 8)})
    assert reader.groups[0]["query_id"] == "q1"
    following = seam(0, 2, 8) | {"commit_id": 9}
    reader._keep({0: following})
    assert reader.groups == {0: following}


def test_a_job_that_begins_anew_replaces_the_former_one() -> None:
    reader = ProgressReader(ServiceSettings(bootstrap_servers="none"))
    reader._keep({0: progress(7, 0, 2), 1: progress(7, 1, 2)})
    new = {group: progress(1, group, 2, query_id="q2") for group in (0, 1)}
    for group, record in new.items():
        record["totals"]["since"] = SINCE + 1
        reader._keep({group: record})
    assert reader.groups == new


@pytest.mark.parametrize("new", [{}, {0: progress(1, 0, 1, query_id="q2")}])
def test_a_topic_that_was_created_again_has_the_progress_of_another_job(
    new: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ProgressReader(ServiceSettings(bootstrap_servers="none"))
    reader._keep({0: progress(7, 0, 2), 1: progress(7, 1, 2)})
    monkeypatch.setattr(progress_reader, "newest_by_group", lambda *_: new)
    monkeypatch.setattr(reader, "_newest_records", lambda *_: [])
    nothing: Any = None
    assert not reader._begin(nothing)
    assert reader.groups == new

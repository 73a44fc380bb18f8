"""A takeover fences no key group of its predecessor unless the output of all of them is complete."""

from typing import Any

import pytest
from harness.settings_of_nowhere import settings

from streaming_job.log.losses import NOTHING_LOST
from streaming_job.log.partitioner import Layout, Partitioner
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.takeover import handover
from streaming_job.transaction.written import GroupOutput

pytestmark = pytest.mark.unit

LAYOUT = Layout("transactions", Partitioner.MURMUR2, 4)


class Writer:
    """See `GroupWriter`; of group 1 tools have deleted what shows its last position."""

    claimed: list[int]

    def __init__(self, _: Any, group: int, own: list[int], *__: Any, successor: str) -> None:
        self._group, self._own = group, [(LAYOUT.topic, partition) for partition in own]

    def written(self, known: Any) -> GroupOutput:
        return GroupOutput(commit_id=7, unknown=frozenset(self._own if self._group == 1 else ()))

    def take_over(self, ends: Any, *, known: Any) -> GroupOutput:
        self.claimed.append(self._group)
        return GroupOutput()

    def close(self) -> None:
        pass


def test_no_group_is_fenced_while_it_is_unknown_what_another_one_has_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Writer.claimed = []
    monkeypatch.setattr(handover, "GroupWriter", Writer)
    takeover = handover.Handover(
        settings(predecessor="old"), LAYOUT.key_groups(2), "new", "instance", NOTHING_LOST, ("rollouts",)
    )
    records = {group: {"query_id": "old", "layout": LAYOUT.to_json()} for group in range(3)}
    monkeypatch.setattr(takeover, "_due", lambda: records)
    monkeypatch.setattr(takeover, "_require_log", lambda _: None)
    with pytest.raises(CheckpointError, match="position in transactions-1 after the last one"):
        takeover._claimed()
    assert Writer.claimed == []

"""The takeover of the output of two key groups by three, on a real broker: who may write, and from where."""

from collections.abc import Callable

import pytest
from harness.writer_bench import OWN, Killed, WriterBench, die

from streaming_job.group import last_record
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.runtime.checkpoint import CheckpointError
from streaming_job.runtime.failpoints import Step
from streaming_job.runtime.preconditions import StartUpError
from streaming_job.takeover import handover as module
from streaming_job.takeover.handover import Handover
from streaming_job.transaction.writer import FencedError, GroupWriter
from streaming_job.transaction.written import OtherQueryError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITIONS, GROUPS = 4, 3


@pytest.fixture
def written(bench: WriterBench) -> list[GroupWriter]:
    """The writers of the predecessor, whose query is q: group 0 has written two commits, group 1 one."""
    writers = [bench.writer("predecessor", group=group) for group in OWN]
    for group, commit_id in ((0, 1), (1, 1), (0, 2)):
        bench.write(writers[group], commit_id, group)
    return writers


def of(bench: WriterBench, query: str = "new", predecessor: str = "q", **settings: object) -> Handover:
    """The takeover by a successor of three key groups."""
    changed = bench.settings.model_copy(update={"predecessor": predecessor, "key_groups": GROUPS, **settings})
    return Handover(changed, KeyGroups(Partitioner.MURMUR2, PARTITIONS, GROUPS), query, f"runs {query}")


def when(monkeypatch: pytest.MonkeyPatch, step: Step, happens: Callable[[], object]) -> None:
    """Do something once a takeover has reached a step."""
    waiting = [happens]

    def reach(reached: Step) -> None:
        if reached is step and waiting:
            waiting.pop()()

    monkeypatch.setattr(module, "reach", reach)


def test_the_successors_groups_continue_where_each_partition_was(
    bench: WriterBench, written: list[GroupWriter]
) -> None:
    takeover = of(bench)
    assert takeover.is_due()
    takeover.run()
    assert not takeover.is_due()
    for group in range(GROUPS):
        partitions = list(range(group, PARTITIONS, GROUPS))
        writer = GroupWriter(bench.settings, group, partitions, "new", "successor")
        try:
            output = writer.take_over({})
        finally:
            writer.close()
        # partitions 0 and 2 were written up to commit 2, the others up to commit 1
        own = {partition: 20 if partition % 2 == 0 else 10 for partition in partitions}
        assert {partition: end for (_, partition), end in output.offsets.items()} == own
        assert output.commit_id == 3
        (first,) = (record for record in bench.progress(group) if record["query_id"] == "new")
        assert first["takeover"] == {"query_id": "q", "release": "of the bench", "key_groups": 2}
        assert last_record.positions(first)[bench.topics.model_rollouts, 0] == 1000


def test_the_predecessor_is_fenced_and_does_not_come_back(
    bench: WriterBench, written: list[GroupWriter]
) -> None:
    of(bench).run()
    for group, commit_id in ((0, 3), (1, 2)):
        with pytest.raises(FencedError, match=f"has taken over key group {group}"):
            bench.write(written[group], commit_id, group)
        with pytest.raises(OtherQueryError, match="set FRAUD_PREDECESSOR=new"):
            bench.writer("predecessor again", group=group)
    assert len(bench.progress(0)) == 3
    assert len(bench.progress(1)) == 2


def test_between_claims_and_seam_nobody_writes_and_both_can_go_on(
    bench: WriterBench, written: list[GroupWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    when(monkeypatch, Step.CLAIMED, die)
    with pytest.raises(Killed):
        of(bench).run()
    with pytest.raises(FencedError):
        bench.write(written[0], 3)
    with pytest.raises(OtherQueryError, match="query new has begun to take over"):
        bench.writer("predecessor again")
    # the predecessor takes its own output back
    back = of(bench, query="q", predecessor="new")
    assert back.is_due()
    back.run()
    assert not back.is_due()
    # and then the successor takes over after all
    again = of(bench)
    assert again.is_due()
    again.run()
    assert not again.is_due()


def test_of_two_successors_at_the_same_time_one_is_fenced(
    bench: WriterBench, written: list[GroupWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    when(monkeypatch, Step.CLAIMED, lambda: of(bench, query="other").run())
    with pytest.raises(FencedError, match="another instance takes the output"):
        of(bench).run()
    with pytest.raises(OtherQueryError, match="is of query other"):
        of(bench).is_due()


def test_a_takeover_that_cannot_be_right_is_refused_before_anything_is_written(bench: WriterBench) -> None:
    with pytest.raises(StartUpError, match="has written no progress records"):
        of(bench).is_due()
    writer = bench.writer("predecessor")
    bench.write(writer, 1)
    with pytest.raises(StartUpError, match=r"key groups 1 of query q have no progress"):
        of(bench).is_due()
    bench.write(bench.writer("predecessor", group=1), 1, 1)
    with pytest.raises(OtherQueryError, match=r"FRAUD_PREDECESSOR=typo, but the output .* is of query q"):
        of(bench, predecessor="typo").is_due()
    with pytest.raises(StartUpError, match="keeps merchant facts"):
        of(bench, merchant_facts=True).is_due()
    bench.write(writer, 2)  # it was not disturbed


def test_a_successor_is_near_once_it_needs_little_time_for_the_rest(
    bench: WriterBench, written: list[GroupWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    takeover = of(bench)
    topic, rollouts = bench.topics.transactions, f"{bench.topics.model_rollouts}-0"
    at_the_end = {f"{topic}-{part}": 20 if part % 2 == 0 else 10 for part in range(PARTITIONS)}
    assert takeover.is_near({**at_the_end, rollouts: 1000}, 0.0)
    assert takeover.is_near({rollouts: 0}, 0.0)  # 1,060 offsets behind
    monkeypatch.setattr(module, "NEAR", 100)
    assert not takeover.is_near({rollouts: 0}, 2_000.0)
    assert takeover.is_near({rollouts: 0}, 2_200.0)
    with pytest.raises(CheckpointError, match=rf"ahead of the output .* in {topic}-0"):
        takeover.is_near({**at_the_end, f"{topic}-0": 21, rollouts: 1000}, 0.0)

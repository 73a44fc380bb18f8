"""The takeover of the output of two key groups by three, on a real broker: who may write, and from where."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from harness.writer_bench import OWN, Killed, WriterBench, die
from typer.testing import CliRunner

from deploy import cli
from deploy.job import NoProgressError
from deploy.local import topics as broker
from loadtests.faults.record_producer import RecordProducer
from streaming_job.log.errors import LogError
from streaming_job.log.losses import NOTHING_LOST
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.log.records import Arrived
from streaming_job.progress import last_record
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.runtime.failpoints import Failpoint
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


def of(
    bench: WriterBench,
    query: str = "new",
    predecessor: str = "q",
    partitions: int = PARTITIONS,
    **settings: object,
) -> Handover:
    """The takeover by a successor of three key groups."""
    changed = bench.settings.model_copy(update={"predecessor": predecessor, "key_groups": GROUPS, **settings})
    key_groups, rollouts = KeyGroups(changed.partitioner, partitions, GROUPS), changed.topics.model_rollouts
    return Handover(changed, key_groups, query, f"runs {query}", NOTHING_LOST, (rollouts,))


def when(monkeypatch: pytest.MonkeyPatch, step: Failpoint, happens: Callable[[], object]) -> None:
    """Do something once a takeover has reached a step."""
    waiting = [happens]

    def reach(reached: Failpoint) -> None:
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
        takeover = first["takeover"]
        assert [takeover[name] for name in ("query_id", "release", "key_groups", "commit_id")] == [
            "q", "of the bench", 2, 3
        ]  # fmt: skip
        assert takeover["asked_by"]
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
    when(monkeypatch, Failpoint.CLAIMED, die)
    with pytest.raises(Killed):
        of(bench).run()
    with pytest.raises(FencedError):
        bench.write(written[0], 3)
    with pytest.raises(OtherQueryError, match="query new has begun to take over"):
        bench.writer("predecessor again")
    # the predecessor takes its own output back, also if it is killed between its claims and the seam
    when(monkeypatch, Failpoint.CLAIMED, die)
    with pytest.raises(Killed):
        of(bench, query="q", predecessor="new").run()
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
    when(monkeypatch, Failpoint.CLAIMED, lambda: of(bench, query="other").run())
    with pytest.raises(FencedError, match="another instance takes the output"):
        of(bench).run()
    with pytest.raises(OtherQueryError, match="is of query other"):
        of(bench).is_due()


def test_a_successor_that_comes_second_does_not_take_the_output_from_the_first(
    bench: WriterBench, written: list[GroupWriter]
) -> None:
    late = of(bench)
    assert late.is_due()
    of(bench, query="other").run()
    with pytest.raises(OtherQueryError, match="is of query other"):
        late.run()


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


def test_on_another_log_than_the_predecessors_nobody_is_fenced(bench: WriterBench) -> None:
    """After the seam each opening of the successor's groups would be refused."""
    topic = bench.topics.transactions
    producer = RecordProducer(bench.servers, Partitioner.MURMUR2)
    for _ in range(20):
        producer.produce(topic, b"card", b"{}", 0)
    producer.flush()
    bench.newest = {(topic, 0): Arrived(19, 1)}
    writers = [bench.writer("predecessor", group=group) for group in OWN]
    for group, writer in zip(OWN, writers, strict=True):
        bench.write(writer, 1, group)
    takeover = of(bench)
    for act in (takeover.is_due, takeover.run):
        with pytest.raises(LogError, match=rf"{topic}-0 holds a record that arrived at \d+ ms at offset 19"):
            act()
    bench.write(writers[0], 2)


def test_a_successor_is_near_once_it_needs_little_time_for_the_rest(
    bench: WriterBench, written: list[GroupWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    takeover = of(bench)
    topic, rollouts = bench.topics.transactions, f"{bench.topics.model_rollouts}-0"
    at_the_end = {f"{topic}-{part}": 20 if part % 2 == 0 else 10 for part in range(PARTITIONS)}
    assert takeover.is_near({0: {**at_the_end, rollouts: 1000}}, 0.0)
    assert takeover.is_near({0: {rollouts: 0}}, 0.0)  # 1,060 offsets behind
    monkeypatch.setattr(module, "NEAR", 100)
    assert not takeover.is_near({0: {rollouts: 0}}, 2_000.0)
    assert takeover.is_near({0: {rollouts: 0}}, 2_200.0)
    with pytest.raises(CheckpointError, match=rf"ahead of the output .* in {topic}-0"):
        takeover.is_near({0: {**at_the_end, f"{topic}-0": 21, rollouts: 1000}}, 0.0)


def test_the_status_of_a_job_names_its_takeover_and_what_is_fixed(
    bench: WriterBench, written: list[GroupWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    of(bench, asked_by="ines").run()
    for name, value in bench.settings.model_copy(update={"key_groups": 5}).variables().items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(cli.app, ["job", "status"]).stdout.splitlines()
    assert "query new" in shown[0]
    assert "from query q (release of the bench, 2 key groups)" in shown[1]
    assert shown[1].endswith("asked by ines")
    assert f"FRAUD_KEY_GROUPS: {GROUPS}; this environment has 5" in shown
    monkeypatch.setenv("FRAUD_JOB_ID", "another")
    assert isinstance(CliRunner().invoke(cli.app, ["job", "status"]).exception, NoProgressError)


def elsewhere(bench: WriterBench, **changes: object) -> dict[str, Any]:
    """Settings of a successor whose transactions are in another topic of six partitions, which is created."""
    topics = bench.topics.model_copy(update={"transactions": f"{bench.topics.transactions}-2"})
    broker.create(bench.servers, topics, partitions=6)
    return {
        "topics": topics,
        "partitioner": Partitioner.CRC32,
        "retired_transactions": (bench.topics.transactions,),
        "predecessor_checkpoint": "kept",
        "partitions": 6,
        **changes,
    }


def test_cards_move_only_where_the_settings_say_so(bench: WriterBench, written: list[GroupWriter]) -> None:
    old = bench.topics.transactions
    with pytest.raises(StartUpError, match=f"set FRAUD_RETIRED_TRANSACTIONS={old}, whose later records"):
        of(bench, **elsewhere(bench, retired_transactions=())).is_due()
    with pytest.raises(
        StartUpError, match="set FRAUD_PREDECESSOR_CHECKPOINT to the predecessor's checkpoint"
    ):
        of(bench, **elsewhere(bench, predecessor_checkpoint="")).is_due()
    assert of(bench, **elsewhere(bench)).is_due()
    bench.write(written[0], 3)  # it was not disturbed


def test_cards_move_at_the_end_of_a_drained_job(bench: WriterBench, written: list[GroupWriter]) -> None:
    takeover, old, rollouts = (
        of(bench, **elsewhere(bench)),
        bench.topics.transactions,
        bench.topics.model_rollouts,
    )
    at_the_end = {f"{old}-{part}": 20 if part % 2 == 0 else 10 for part in range(PARTITIONS)}
    for behind in ({f"{old}-1": 9}, {f"{rollouts}-0": 999}):
        with pytest.raises(StartUpError, match=r"decided more than the state .* drain the predecessor"):
            takeover.is_near({0: {**at_the_end, f"{rollouts}-0": 1000, **behind}}, 0.0)
    assert takeover.is_near({0: {**at_the_end, f"{rollouts}-0": 1000}}, 0.0)
    takeover.run()
    assert not takeover.is_due()
    first, *others = (
        record for group in range(GROUPS) for record in bench.progress(group) if record["query_id"] == "new"
    )
    ends = last_record.positions(first)
    assert {tp: end for tp, end in ends.items() if tp[0] == f"{old}-2"} == {
        (f"{old}-2", p): 0 for p in (0, 3)
    }
    assert [ends[old, part] for part in range(PARTITIONS)] == [20, 10, 20, 10]
    assert first["takeover"]["drained"]["ends"] == [20, 10, 20, 10]
    assert not any(old in {topic for topic, _ in last_record.positions(other)} for other in others)
    assert bench.committed_of(f"{old}-2", tuple(range(6))) == dict.fromkeys(range(6), 0)
    with pytest.raises(OtherQueryError, match="set FRAUD_PREDECESSOR=new"):
        bench.writer("predecessor again")
    # back to the topic that the cards have left: its offsets are decided
    with pytest.raises(StartUpError, match="create one with another name"):
        of(bench, query="q", predecessor="new", retired_transactions=(f"{old}-2",)).is_due()
    # a second move, and a takeover within the new topic, go on refusing what comes to the first one
    third = bench.topics.model_copy(update={"transactions": f"{old}-3"})
    broker.create(bench.servers, third, partitions=6)
    again = {**elsewhere(bench, topics=third), "query": "third", "predecessor": "new"}
    both = f"{old},{old}-2"
    for left, refusal in (
        ((f"{old}-2",), f"lacks {old}, whose later records the predecessor refuses: set it to {both}; or,"),
        ((old,), f"set FRAUD_RETIRED_TRANSACTIONS={both}, whose later records"),
        ((old, f"{old}-2", bench.topics.profiles), f"names {bench.topics.profiles}, which the predecessor"),
    ):
        with pytest.raises(StartUpError, match=refusal):
            of(bench, **{**again, "retired_transactions": left}).is_due()
    assert of(bench, **{**again, "retired_transactions": (old, f"{old}-2")}).is_due()
    within = {**elsewhere(bench), "query": "third", "predecessor": "new"}
    with pytest.raises(StartUpError, match=f"lacks {old}, "):
        of(bench, **{**within, "retired_transactions": ()}).is_due()
    admin = AdminClient({"bootstrap.servers": bench.servers})
    admin.delete_topics([old])[old].result()
    assert of(bench, **{**within, "retired_transactions": ()}).is_due(), "nothing can be written there"


def test_cards_do_not_move_while_their_old_topic_still_grows(
    bench: WriterBench, written: list[GroupWriter]
) -> None:
    takeover, old = of(bench, **elsewhere(bench)), bench.topics.transactions
    producer = RecordProducer(bench.servers, Partitioner.MURMUR2)
    for _ in range(12):
        producer.produce(old, b"c", b"{}", 1)
    producer.flush()
    at_the_end = {f"{old}-{part}": 20 if part % 2 == 0 else 10 for part in range(PARTITIONS)}
    with pytest.raises(
        StartUpError, match=f"2 records were written to {old} after the predecessor was drained"
    ):
        takeover.is_near({0: {**at_the_end, f"{bench.topics.model_rollouts}-0": 1000}}, 0.0)


def test_the_status_names_the_steps_of_a_move(
    bench: WriterBench, written: list[GroupWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bench.settings.variables().items():
        monkeypatch.setenv(name, value)
    target = f"{bench.topics.transactions}-2"
    asked = ["job", "status", "--move-to", target, "--partitioner", "crc32"]
    states = [line.split("]")[0][-4:] for line in CliRunner().invoke(cli.app, asked).stdout.splitlines()[1:]]
    assert states == ["[now", "done", "done", "then"]
    settings = elsewhere(bench)
    again = CliRunner().invoke(cli.app, asked).stdout.splitlines()
    assert again[0] == f"the job decides {bench.topics.transactions} (4 partitions by murmur2)"
    assert again[1].startswith("1. [done] create ")
    takeover, old = of(bench, **settings), bench.topics.transactions
    at_the_end = {f"{old}-{part}": 20 if part % 2 == 0 else 10 for part in range(PARTITIONS)}
    assert takeover.is_near({0: {**at_the_end, f"{bench.topics.model_rollouts}-0": 1000}}, 0.0)
    takeover.run()
    after = json.loads(CliRunner().invoke(cli.app, [*asked, "--json"]).stdout)
    assert [step["is_done"] for step in after] == [True, False, False]

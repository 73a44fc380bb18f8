"""The opening of a key group on a real broker: a start that is refused leaves a running job alone."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from harness.job_world import LIMITS, PARTITIONER, load
from harness.writer_bench import OWN, At, Killed, WriterBench, die

from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, load_meta
from loadtests.faults.record_producer import RecordProducer
from streaming_job.facts.table import MerchantRules
from streaming_job.group.opening import OpenGroup, Opening, begin, change_settings
from streaming_job.group.rules import Rules
from streaming_job.group.settings_in_force import are_stored
from streaming_job.group.stored_positions import positions_of, save_positions
from streaming_job.log.partitioner import KeyGroups
from streaming_job.runtime.checkpoint import CheckpointError
from streaming_job.runtime.failpoints import Step
from streaming_job.transaction.writer import FencedError

pytestmark = pytest.mark.integration

RECORDS = 20
"""Number of records in each partition of the topic of transactions. Commit n of the bench has the end offset
10 * n, so two commits reach the end."""


@pytest.fixture
def opening(bench: WriterBench) -> Opening:
    """Arguments with which a second instance opens group 0 with merchant facts."""
    producer = RecordProducer(bench.servers, PARTITIONER)
    for group in OWN:
        for partition in OWN[group]:
            for _ in range(RECORDS):
                producer.produce(bench.topics.transactions, b"card", b"{}", partition)
    producer.flush()
    merchants = MerchantRules(bench.settings.job_id, bench.settings.label_delay_ms)
    rules = Rules(bench.topics, KeyGroups(PARTITIONER, 4, len(OWN)), LIMITS, load, merchants=merchants)
    return Opening(bench.settings, rules, 0, "q", "second")


@pytest.fixture
def start(opening: Opening) -> Callable[[], OpenGroup]:
    """Function that opens the group with an empty state."""
    return lambda: OpenGroup(opening, GroupState(MemoryArena()), Meta(), MemoryPieces(), 0)


def test_a_start_without_the_last_progress_record_is_refused_and_fences_nobody(
    bench: WriterBench, start: Callable[[], OpenGroup]
) -> None:
    running = bench.writer("first")
    bench.write(running, 1)
    bench.empty_progress()
    with pytest.raises(CheckpointError, match=r"written 1 Kafka transactions.* has number 0, "):
        start()
    bench.write(running, 2)
    opened = start()  # the last commit's progress record is enough
    opened.close()
    with pytest.raises(FencedError):
        bench.write(running, 3)


def test_a_start_waits_for_a_last_progress_record_that_another_group_hides(
    bench: WriterBench, start: Callable[[], OpenGroup], at: At
) -> None:
    """An open transaction of group 1, whose process was killed, hides what group 0 has committed since."""
    first, other = bench.writer("first", group=0), bench.writer("first", group=1)
    bench.write(first, 1)
    at(Step.SENT, die)
    with pytest.raises(Killed):
        bench.write(other, 1, group=1)
    bench.write(first, 2)
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(start)
        with pytest.raises(TimeoutError):
            later.result(1.0)
        bench.writer("second", group=1)  # takes group 1 over, which aborts the open transaction
        later.result(20.0).close()


def test_other_settings_are_taken_over_only_where_all_output_is_in_the_state(
    bench: WriterBench, opening: Opening
) -> None:
    pieces = MemoryPieces()
    begin(opening, load_meta(pieces), pieces)
    running = bench.writer("first")
    bench.write(running, 1)
    settings = bench.settings.model_copy(update={"allowed_skew_ms": 1})
    changed = replace(opening, settings=settings)
    assert not are_stored(load_meta(pieces), settings.decisive)
    with pytest.raises(CheckpointError, match=r"FRAUD_ALLOWED_SKEW_MS was 300000, is 1: .* SIGTERM"):
        change_settings(changed, load_meta(pieces), pieces)
    assert not are_stored(load_meta(pieces), settings.decisive)
    # a clean stop leaves P at Q
    meta = load_meta(pieces)
    save_positions(meta, positions_of(meta) | bench.ends(1))
    change_settings(changed, meta, pieces)
    assert are_stored(load_meta(pieces), settings.decisive)
    bench.write(running, 2)  # nobody was fenced

"""Settings that decide: fixed with the state until P = Q, and named by the progress records."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from harness.job_world import LIMITS, World
from harness.log_world import HOUR, SECOND
from harness.memory_job import MemoryJob, Output
from harness.memory_log import Fate, KilledError, as_written

from feature_store.state.journal import load_meta
from streaming_job.group.rules import Rules
from streaming_job.group.stored_positions import positions_of
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.settings import DECISIVE, JobSettings

pytestmark = pytest.mark.unit

TRANSACTIONS = 60
FIXED_BY_THE_FIRST_START = {"job_id", "partitioner", "key_groups", "merchant_facts", "label_delay_ms"}
"""See `runtime.partitioning.require_fixed`."""
DO_NOT_DECIDE = {
    # where things are: positions in the state name the input topics, commits the others
    "bootstrap_servers", "kafka", "topics", "mlflow_tracking_uri", "checkpoint", "work_dir",
    "log_archive",
    # how the log is cut into batches and epochs, and how long something is waited for
    "epoch_s", "epoch_bytes", "max_records", "max_bytes", "spacing_ms", "commit_interval_ms",
    "wait_for_snapshot_s", "transaction_timeout_ms",
    # whose output is continued: its successors decide by their own settings
    "asked_by", "predecessor", "predecessor_checkpoint",
    # whose records are only refused, from a position in the state on; and where a run ends
    "retired_transactions", "drain",
    # Spark's processes
    "master", "epoch_port", "spark", "spark_conf_dir", "driver_memory", "driver_java_options", "ui_port",
}  # fmt: skip


def test_each_setting_either_decides_or_does_not() -> None:
    """A new setting has to be put into one of the three sets; one that decides is fixed, or in DECISIVE."""
    kinds = [*DECISIVE, *FIXED_BY_THE_FIRST_START, *DO_NOT_DECIDE]
    assert sorted(kinds) == sorted(JobSettings.model_fields)


def job(limit: int, fate: Fate | None = None) -> MemoryJob:
    """A job whose transactions are all two hours late, after at most `limit` transactions were written."""
    world = World()
    for number in range(TRANSACTIONS):
        world.tx(number * SECOND - 2 * HOUR, arrival=number * SECOND)
    return MemoryJob(0, world.rules(), as_written(world)[: len(world.rollouts) + limit], fate or Fate(1))


def stricter(rules: Rules) -> Rules:
    return replace(rules, limits=replace(LIMITS, lateness_ms=HOUR))


def letters(output: Any) -> list[int]:
    return [orjson.loads(letter)["offset"] for letter in output.values("dead_letters")]


def killed_between_p_and_q() -> tuple[MemoryJob, Rules]:
    """A job that has committed output which its state does not include."""
    memory, rules = job(TRANSACTIONS), World().rules()
    memory.epoch(1)  # stores P
    memory.epoch(3)
    stored = len(memory.checkpoints) - 1
    memory.epoch(5)  # its changes of the state are lost, as by a kill before Spark commits
    assert not letters(memory.output)
    memory.restore(stored)
    return memory, rules


def test_a_crash_before_the_state_is_stored_fixes_the_settings() -> None:
    memory, rules = killed_between_p_and_q()
    memory.restart(stricter(rules))
    with pytest.raises(
        CheckpointError,
        match=r"FRAUD_ALLOWED_LATENESS_MS was 604800000, is 3600000: .* start the job with \S+=604800000",
    ):
        memory.epoch(5)
    # with the former settings it decides again; at the next clean stop the others are taken over
    memory.restart(rules)
    committed = dict(memory.output.committed)
    while positions_of(load_meta(memory.pieces)).items() & committed.items() != committed.items():
        memory.epoch(1)
        committed = dict(memory.output.committed)
    assert not letters(memory.output)
    memory.restart(stricter(rules))
    while not memory.is_done:
        memory.epoch(20)
    assert min(letters(memory.output)) >= min(committed.values())


def test_settings_changed_after_a_clean_stop_hold_from_there_on() -> None:
    memory, rules = job(TRANSACTIONS), World().rules()
    memory.epoch(1)
    while memory.output.counts["transactions"] < TRANSACTIONS // 3:
        memory.epoch(2)
    before, until = len(memory.checkpoints) - 1, dict(memory.output.committed)
    memory.restart(stricter(rules))
    memory.epoch(5)
    assert memory.output.committed == until, "the epoch of a change decides nothing"
    memory.epoch(5)
    changed = len(memory.checkpoints) - 2
    while not memory.is_done:
        memory.epoch(20)
    (end,) = until.values()
    assert letters(memory.output)
    assert min(letters(memory.output)) >= end
    assert memory.output.counts["transactions"] + len(letters(memory.output)) == TRANSACTIONS
    # an older state can be decided again only if it is not older than the change
    for settings in (rules, stricter(rules)):
        memory.restore(before)
        memory.restart(settings)
        with pytest.raises(CheckpointError, match="FRAUD_ALLOWED_LATENESS_MS"):
            memory.epoch(5)
    expected = letters(memory.output)
    memory.restore(changed)
    memory.restart(stricter(rules))
    while not memory.is_done:
        memory.epoch(20)
    assert letters(memory.output) == expected


def test_the_topic_of_schemas_is_given_up_after_a_clean_stop_and_read_again_later() -> None:
    world = World()
    world.raw_schema(b"{")
    for number in range(TRANSACTIONS):
        world.tx(number * SECOND)
    rules = world.rules()
    without = replace(rules, topics=rules.topics.model_copy(update={"record_schemas": ""}))
    memory = MemoryJob(0, rules, as_written(world), Fate(1))
    memory.epoch(1)
    for restarted in (without, rules):
        while memory.output.counts["transactions"] < TRANSACTIONS // 3:
            memory.epoch(5)
        memory.restart(restarted)
        memory.epoch(5)  # takes the change over
        memory.epoch(5)
    while not memory.is_done:
        memory.epoch(20)
    assert memory.output.counts["transactions"] == TRANSACTIONS
    assert len(letters(memory.output)) == 1


def test_values_that_were_changed_and_changed_back_are_not_the_same() -> None:
    """What was decided between the two changes cannot be decided again with the values of today."""
    memory, rules = job(TRANSACTIONS), World().rules()
    memory.epoch(1)
    memory.epoch(2)
    before = len(memory.checkpoints) - 1
    for values in (stricter(rules), rules):
        memory.restart(values)
        memory.epoch(5)
        memory.epoch(5)
    assert letters(memory.output)
    memory.restore(before)
    with pytest.raises(CheckpointError, match=r"older than a change of settings \(undone since\)"):
        memory.epoch(5)


def test_settings_are_not_taken_over_while_the_output_is_lost() -> None:
    """Its Q may be beyond P: once the topics are restored, neither value would be accepted."""
    memory, rules = killed_between_p_and_q()
    output, memory.output = memory.output, Output()
    memory.restart(stricter(rules))
    with pytest.raises(CheckpointError, match="restore the consumer group's offsets or the progress topic"):
        memory.epoch(5)
    memory.output = output
    memory.restart(rules)
    memory.epoch(20)


def test_a_checkpoint_that_is_gone_begins_again_only_with_the_same_settings() -> None:
    memory, rules = job(TRANSACTIONS), World().rules()
    memory.epoch(1)
    memory.epoch(5)
    assert memory.output.commit_id
    memory.restore(0)
    memory.restart(stricter(rules))
    with pytest.raises(CheckpointError, match="FRAUD_ALLOWED_LATENESS_MS"):
        memory.epoch(1)
    memory.restart(rules)
    while not memory.is_done:
        memory.epoch(20)
    assert not letters(memory.output)


@pytest.mark.parametrize("calls", range(0, 40, 3))
def test_a_kill_during_the_change_leaves_one_of_the_two(calls: int) -> None:
    fate = Fate(1)
    memory, rules = job(TRANSACTIONS, fate), World().rules()
    memory.epoch(1)
    memory.epoch(2)
    memory.restart(stricter(rules))
    fate.left = calls
    try:
        for _ in range(3):
            memory.epoch(3)
    except KilledError:
        pass
    fate.left = None
    memory.restart(stricter(rules))
    while not memory.is_done:
        memory.epoch(20)
    refused = letters(memory.output)
    assert refused == sorted(set(refused))
    assert memory.output.counts["transactions"] + len(refused) == TRANSACTIONS

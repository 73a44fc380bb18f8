"""What holds for every input of the table of topics: a record that breaks its contract is one dead letter.

The audit's side is tested in tests/loadtests/test_audited_inputs.py.
"""

from dataclasses import replace

import pytest
from harness import settings_of_nowhere
from harness.framed_records import avro_schema, event
from harness.group_batches import as_records
from harness.job_world import World
from harness.labelled_world import merchant_rules
from harness.log_world import START, TOPICS

from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, load_meta
from loadtests.oracle import Record
from streaming_job.contracts.topic import Component, Operation, Role
from streaming_job.contracts.topics import ACCEPTED, TABLE
from streaming_job.dead_letters import replay
from streaming_job.dead_letters.letter import Letter, LetterError
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.facts.clock import IDLE
from streaming_job.group.core import GroupCore
from streaming_job.group.rules import Rules
from streaming_job.group.silence import Silence
from streaming_job.permissions import needed
from streaming_job.progress.record import counts_of

pytestmark = pytest.mark.unit
INPUTS = [field for field, row in TABLE.items() if row.role in (Role.INPUT, Role.TABLE)]
GROUPS = 3


def outcomes(record: Record, *, silent: bool = False) -> list[tuple[list[DeadLetter], dict[str, int]]]:
    """The dead letters and counts of each key group after an otherwise empty log with one record."""
    world = World(partitions=GROUPS)
    rules = world.rules(GROUPS, merchants=merchant_rules())
    result = []
    for group in range(GROUPS):
        before = {(record.topic, record.partition): record.offset + 1} if silent else {}
        state = GroupState(MemoryArena(), keeps_ids=True)
        core = GroupCore(group, rules, state, Meta(), MemoryPieces(), Silence(before))
        for rollouts in as_records(world.rollouts):
            core.fold(rollouts)
        core.take_outcome()
        for records in as_records([record]):
            if record.topic != TOPICS.transactions:
                core.fold(records)
            elif record.partition in rules.key_groups.own(group):
                core.decide(records, silent=silent)
        core.settle(IDLE, 0)
        outcome = core.take_outcome()
        result.append((outcome.dead_letters, counts_of(outcome)))
    return result


@pytest.fixture(params=INPUTS)
def broken(request: pytest.FixtureRequest) -> Record:
    """A record of each input that is no JSON."""
    return Record(getattr(TOPICS, request.param), 0, 20, START, b"c", b"{")


def test_a_broken_record_is_the_dead_letter_of_one_group(broken: Record) -> None:
    found = outcomes(broken)
    (letter,) = [letter for letters, _ in found for letter in letters]
    assert (letter.topic, letter.partition, letter.offset, letter.value) == (broken.topic, 0, 20, b"{")
    assert sum(counts["records"] for _, counts in found) == 1
    assert sum(counts["dead_letters"] for _, counts in found) == 1


def test_a_broken_record_before_q_is_no_second_dead_letter(broken: Record) -> None:
    assert [letters for letters, _ in outcomes(broken, silent=True)] == [[]] * GROUPS


def test_a_broken_record_is_not_sent_again(broken: Record) -> None:
    letter = Letter(
        ("dead-letters", 0, 0), "malformed_json", "", broken.topic, 0, 20, START, broken.key, broken.value
    )
    with pytest.raises(LetterError, match="1 of 1 records would be refused"):
        replay.check([letter], LetterSettings(bootstrap_servers="nowhere", topics=TOPICS))


@pytest.mark.parametrize("field", INPUTS)
def test_an_input_is_counted_read_by_job_and_audit_and_written_by_replays(field: str) -> None:
    row, settings = TABLE[field], settings_of_nowhere.settings(merchant_facts=True, topics=TOPICS)
    assert row.accepted
    assert set(row.accepted) <= set(ACCEPTED[row.input_name])
    for component, operation in (
        (Component.JOB, Operation.READ),
        (Component.AUDIT, Operation.READ),
        (Component.DEAD_LETTERS, Operation.WRITE),
    ):
        allowed = {p.name: p.operations for p in needed(component, settings)}
        assert operation in allowed[getattr(settings.topics, field)]
    assert row.retention.reason


def test_schemas_are_reported_once_although_a_start_between_has_not_read_their_topic() -> None:
    world, store = World(), MemoryPieces()
    for value in (event(1, avro_schema()), b"{"):
        world.raw_schema(value)
    with_schemas = world.rules()
    without = replace(with_schemas, topics=with_schemas.topics.model_copy(update={"record_schemas": ""}))

    def reported(rules: Rules, end: int) -> tuple[list[int], int]:
        """Offsets of dead letters, and number of accepted schemas, in an epoch whose start knows no Q."""
        core = GroupCore(0, rules, GroupState(MemoryArena()), load_meta(store), store, Silence({}))
        is_read = bool(rules.topics.record_schemas)
        for records in as_records(world.schemas[:end]) if is_read else ():
            core.fold(records)
        outcome = core.take_outcome()
        core.seal(store, {(TOPICS.record_schemas, 0): end} if is_read else {})
        return [letter.offset for letter in outcome.dead_letters], outcome.counts["schemas"]

    assert reported(with_schemas, 2) == ([1], 1)
    assert reported(without, 2) == ([], 0)
    world.raw_schema(b"]")
    assert reported(with_schemas, 3) == ([2], 0)

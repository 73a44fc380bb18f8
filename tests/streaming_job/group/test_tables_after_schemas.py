"""On a topic that the transactions have left a framed record with a card number arrives, and then its schema.

In which order a group reads the two is chance; the dead letter must not depend on it, nor show the number.
"""

import json
from dataclasses import replace

import pytest
from harness.framed_records import avro, avro_schema, event
from harness.job_world import PARTITIONER, World
from harness.log_world import TOPICS
from harness.memory_job import mortal
from harness.memory_log import Fate, MemoryLog, as_written
from harness.memory_takeover import Generation

from streaming_job.log.partitioner import Layout

pytestmark = pytest.mark.unit

BEFORE, AFTER = Layout(TOPICS.transactions, PARTITIONER, 2), Layout("elsewhere", PARTITIONER, 2)
LEFT, SCHEMAS = (TOPICS.transactions, 0), (TOPICS.record_schemas, 0)


def framed(card_id: str) -> tuple[bytes, bytes]:
    fields = {
        "transaction_id": "t", "card_id": card_id, "merchant_id": "m", "amount": 1.0, "currency": "EUR",
        "country": "DE", "event_time": 1,
    }  # fmt: skip
    return card_id.encode(), avro(1, avro_schema(), fields)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("runs", [False, True])
def test_the_dead_letter_of_a_card_number_on_a_retired_topic_hides_it(seed: int, *, runs: bool) -> None:
    world, fate = World(partitions=2), Fate(seed)
    world.rollout("r1", -3_600_000)
    world.tx(1_000)
    inputs = [*((TOPICS.transactions, part) for part in range(2)), SCHEMAS, (TOPICS.profiles, 0)]
    log = MemoryLog(as_written(world), fate, inputs)
    log.grow(1 << 20)
    rules = world.rules()
    moved = replace(
        rules,
        topics=rules.topics.model_copy(update={"transactions": AFTER.topic}),
        key_groups=AFTER.key_groups(1),
        retired=(BEFORE.topic,),
    )
    late = [framed("4111111111111111"), framed("c1"), framed("4111111111111111")]
    with mortal(fate):
        old = Generation("old", replace(rules, key_groups=BEFORE.key_groups(1)), log, fate)
        old.begin()
        log.stop_producers()
        old.drain(log, [])
        log.move(BEFORE, AFTER)
        new = Generation("new", moved, log, fate)
        new.inherit(old)
        new.take_over(old)
        if runs:
            new.begin()
        log.append(LEFT, late)
        log.append(SCHEMAS, [(b"1", event(1, avro_schema()))])
        for kill in range(seed, 200, 30):
            new.epoch(0, 3, kill)
        new.finish()
    letters = [json.loads(value) for value in new.outputs[0].values("dead_letters")]
    assert [(letter["offset"] - letters[0]["offset"], letter["reason"]) for letter in letters] == [
        (0, "card_number"), (1, "retired_topic"), (2, "card_number")
    ]  # fmt: skip

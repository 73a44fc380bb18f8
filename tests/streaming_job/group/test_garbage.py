"""Garbage on each topic that the job reads stops no key group: each record is a dead letter, or counted."""

import json
import random
from collections import Counter

import pytest
from harness.job_world import World, load
from harness.labelled_world import MemoryGroups, merchant_rules
from harness.log_world import DAY, HOUR
from harness.memory_job import FACTS, mortal
from harness.memory_log import Fate, as_written

pytestmark = pytest.mark.unit

RNG = random.Random(7)
DEEP = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
GARBAGE: list[tuple[bytes | None, bytes | None]] = [
    (None, b""),
    (None, RNG.randbytes(200)),
    (RNG.randbytes(30), RNG.randbytes(30)),
    (b"\xff\xfe", b"{"),
    (b"", b"[" * 100_000),
    (b"c", DEEP),
    (DEEP, b"null"),
    (b"c" * 100_000, b"{}"),
    (b"c", b'"text"'),
    (b"c", b'{"op":"u","after":{"card_id":7}}'),
    (b"c", b'{"card_id":"c","transaction_id":1e999}'),
    (b"c", b'{"schema_version":99,"kind":"x","type":[],"rollout_id":{}}'),
    (b"c", b" " * 70_000),
]
TOMBSTONES: list[bytes | None] = [None, b"", b"c", b"\xff", b"[]", b'{"card_id":""}']
"""Keys of records without a value."""


def test_garbage_on_each_input_and_among_the_facts_stops_no_group() -> None:
    world = World(rollout=False, partitions=2)
    world.rollout("all", -HOUR, threshold=0.0)
    world.profile("r", -HOUR, "c0", source={"snapshot": "last", "lsn": 1})
    clock = 0
    for number, (key, value) in enumerate([*GARBAGE, *((key, None) for key in TOMBSTONES)]):
        clock += HOUR // 2
        world.tx(clock, card_id=f"c{number % 3}", merchant_id="m", transaction_id=f"t{number}")
        world.raw_tx(value, clock + 1, key, partition=number % 2)
        world.raw_profile(value, clock + 2, key)
        world.raw_rollout(value, clock + 3)
        world.raw_label(value, clock + 4, key)
        world.raw_label(value, clock + 5, key, old=True)
    world.tx(clock + DAY, card_id="c0", transaction_id="last")
    fate = Fate(3)
    groups = MemoryGroups(world.rules(2, load, merchant_rules(0)), as_written(world), fate)
    sent = len(GARBAGE) + len(TOMBSTONES)
    with mortal(fate):
        for key, value in [*GARBAGE, *((key, None) for key in TOMBSTONES)]:
            groups.log.append(FACTS, [(key, value)])
            for group in range(2):
                groups.disturb(group, None, 6, None)
        groups.finish()
    alerted = {json.loads(alert)["transaction_id"] for alert in groups.alerts().values()}
    assert alerted == {*(f"t{number}" for number in range(sent)), "last"}
    letters = Counter(topic for topic, *_ in groups.dead_letters())
    assert letters == dict.fromkeys(
        ("transactions", "bank.public.card_profiles", "model-rollouts", "labels", "chargebacks"), sent
    )
    assert [job.output.counts["foreign_facts"] for job in groups.jobs] == [sent, 0]

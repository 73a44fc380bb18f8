"""Both audits demand the dead letter of a broken record, in every table of the table of topics."""

import json

import pytest
from audited_log import TOPICS, audit, changed, job_output
from followed_log import Audited
from harness.log_world import START
from oracle_world import World

from loadtests.oracle import Record

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("topic", TOPICS.tables)
def test_a_broken_record_without_dead_letter_is_found(topic: str) -> None:
    world = World()
    world.tx(0, 900.0)
    log = job_output(world)
    offset = len(log.topics[topic])
    log.topics[topic].append(Record(topic, 0, offset, START, b"c", b"{"))
    log.group[topic, 0] = offset + 1
    (progress,) = log.topics["job-progress"]
    read = [part for part in json.loads(progress.value)["partitions"] if part["topic"] != topic]
    read.append({"topic": topic, "partition": 0, "start_offset": 0, "end_offset": offset + 1})
    log.topics["job-progress"] = [changed(progress, partitions=read)]
    followed = Audited(log)
    followed.settle()
    for findings in (audit(log).findings, followed.follower.findings):
        assert findings.of(TOPICS.dead_letters)["missing"] == 1
        assert f"{topic}[0]@{offset}: no dead letter" in findings.examples[0]

"""A partition that loses its newest records under a running job, as its only replica does in a power cut.

New records then get offsets whose output counts as written. If the job went on, it would decide them in
silence. So it has to end at the first attempt of the task, and the next start has to be refused, also when
the log reaches beyond the output again.
"""

import re
from pathlib import Path

import pytest
from thoroughness import only_thorough

from deploy.local import stack
from loadtests.faults.record_producer import RecordProducer
from loadtests.faults.relay import Relay

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), only_thorough]

RETRY = re.compile(r"[Tt]ask \d+\.[1-9] in stage")
"""A later attempt of a task in Spark's log."""
BURSTS = 5


def segments(stack_dir: Path, topic: str) -> list[Path]:
    """The files with the records of a topic, one for each partition."""
    return [
        file
        for directory in (stack_dir / "kafka").rglob(f"{topic}-*")
        for file in directory.glob("*.log")
        if file.stat().st_size
    ]


def lose_tail(stack_dir: Path, topic: str) -> None:
    """Kill the broker, and start it again without the last third of the topic's records."""
    stack.kill(stack_dir, "kafka")
    for file in segments(stack_dir, topic):
        with file.open("r+b") as content:
            content.truncate(file.stat().st_size * 2 // 3)
    stack.up(stack_dir)


def test_a_lost_tail_ends_the_job_and_no_transaction_is_decided_in_silence(
    relay: Relay, stack_dir: Path
) -> None:
    installed = relay.installed
    topics = installed.topics
    for _ in range(BURSTS):
        relay.burst()
        installed.caught_up(relay.job)
    ended = relay.job.epochs()
    relay.until(lambda: relay.job.epochs() > ended, "an epoch that saves the whole burst")
    relay.burst()
    installed.caught_up(relay.job)
    before, alerts = installed.ends(topics.transactions), installed.count(topics.fraud_alerts)
    lose_tail(stack_dir, topics.transactions)
    lost = installed.ends(topics.transactions)
    assert any(lost[partition] < end for partition, end in before.items())
    assert relay.job.exit_code() == 1, relay.job.log
    said = r"error: (the records of \S+ from offset \d+ on are gone|\S+ was read up to offset \d+, but ends )"
    assert re.match(said, relay.job.error), relay.job.log
    assert not RETRY.search(relay.job.log), relay.job.log
    # producers go on: the new records have offsets whose output counts as written
    producer = RecordProducer(installed.stack.bootstrap_servers, installed.settings.partitioner)
    for per_partition, said in (
        (1, r"error: \S+ was read up to offset \d+, but ends at \d+: .*"),
        (
            max(before.values()),
            r"error: \S+ holds (no|a) record .*at offset \d+, and not the one that was read there .*",
        ),
    ):
        for partition in list(before) * per_partition:
            producer.produce(topics.transactions, b"card", b"{}", partition)
        producer.flush()
        assert relay.restart().exit_code() == 1, relay.job.log
        assert re.match(said, relay.job.error), relay.job.log
        assert not RETRY.search(relay.job.log), relay.job.log
        assert installed.count(topics.fraud_alerts) == alerts

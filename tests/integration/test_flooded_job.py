"""Backlogs of junk and of alerts: a worker's memory does not grow with the size of the junk.

The alerts have 60 MB in all, which the memory limit would not notice: of them, the test shows only that they
are written correctly after the junk.
"""

import random
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from thoroughness import only_thorough

from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from loadtests.oracle import Kind
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TAKEN_BYTES = 1 << 20
"""Value of FRAUD_MAX_BYTES."""
MEGABYTE = 1_000_000
NOISE, BLANKS = 200, 1_000
"""Numbers of records of a megabyte: those of NOISE cannot be compressed, BLANKS shrink to some kilobytes."""
LARGEST = 3 * MEGABYTE
"""Size of a record, bytes, that exceeds the topic's limit unless it is compressed."""
ALERTS = 20_000
"""Number of transactions, most of which become alerts of about three kilobytes each."""
MOST_MEMORY = 640 << 20
"""Memory limit of a worker, bytes; its libraries take 300 MB, and the junk has more than a gigabyte."""


@only_thorough
def test_floods_of_junk_and_of_alerts_take_no_more_memory(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path
) -> None:
    topics = topic_names()
    topics = topics.model_copy(update={"profiles": f"profiles-of-{topics.transactions}"})
    installed = Installation(stack, topics, tmp_path, max_bytes=TAKEN_BYTES)
    installed.roll_out(max_count_5m=1)  # a card's second transaction in five minutes already alerts
    rng = random.Random(7)
    for _ in range(NOISE):
        installed.send_raw([rng.randbytes(MEGABYTE)], rng.randbytes(8))
    blanks = Producer(
        {
            "bootstrap.servers": stack.bootstrap_servers,
            "message.max.bytes": 2 * LARGEST,
            "compression.type": "lz4",
            "log_level": 0,
        }
    )
    for number in range(BLANKS):
        blanks.produce(topics.transactions, b" " * MEGABYTE, str(number))
        blanks.poll(0)
    for topic in (topics.transactions, topics.profiles):
        blanks.produce(topic, b" " * LARGEST, b'{"card_id":"c"}')
    assert blanks.flush(60) == 0
    installed.sent += BLANKS + 1
    installed.send(ALERTS)
    with installed.start() as job:
        installed.caught_up(job)
        peaks = [peak(worker) for worker in job.workers()]
        verdict = installed.audit()
        assert job.runs
    assert len(peaks) == 2 * installed.settings.key_groups  # Spark's worker and the resident of each group
    assert max(peaks) < MOST_MEMORY
    assert verdict.kinds[Kind.DEAD_LETTER] >= NOISE + BLANKS + 1
    assert verdict.kinds[Kind.ALERT] > 0.9 * ALERTS
    assert verdict.dead_letters["record_too_large"] >= NOISE + BLANKS + 1


def peak(process: psutil.Process) -> int:
    """Peak memory of a process, bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10

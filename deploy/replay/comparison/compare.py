"""The comparison of a replay with the live job: reads both outputs, and makes the report."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import TopicPartition
from numpy.typing import NDArray

from deploy.replay import inputs
from deploy.replay.comparison import columns, labelled, reading, report
from deploy.replay.comparison.causes import Deciding
from deploy.replay.comparison.differences import Side, join, side
from deploy.replay.record import Replay
from streaming_job.archive.followers import LogArchive, log_archive
from streaming_job.decide.rollout_history import RolloutHistory, RolloutRecord
from streaming_job.log import clients, follow
from streaming_job.progress import last_record
from streaming_job.progress.last_record import Record
from streaming_job.settings import JobSettings
from streaming_job.takeover.handover import newest_records

OTHERS: Mapping[str, pa.Schema] = {"dead_letters": columns.LETTER, "shadow_alerts": columns.SHADOW}
"""Outputs that are compared as a whole, by their fields of `Topics`."""


def compare(live: JobSettings, replay: Replay, say: Callable[[str], object]) -> dict[str, Any]:
    """Compare the alerts for the transactions that both jobs have decided.

    The live side is what is on the live topics, and in the archive in which the replay begins: after a switch
    the replay's own decisions, from the seam on.
    """
    other, topic = replay.settings(live), live.topics.transactions
    archive = log_archive(live.model_copy(update={"log_archive": replay.archive}))
    both = reading.decided(live, other)
    ranges = reading.kept(live, archive, [live.topics.fraud_alerts, live.topics.suppressed_alerts], both)
    sides: list[Side] = []
    for name, job in (("live", live), ("replayed", other)):
        say(f"reading the {name} alerts")
        sent, suppressed = (
            reading.values(job, archive, each)
            for each in (job.topics.fraud_alerts, job.topics.suppressed_alerts)
        )
        sides.append(side(sent, suppressed, ranges, topic))
    say("comparing")
    records = [newest_records(job)[0] for job in (live, other)]
    live_deciding, replay_deciding = (
        _deciding(job, record) for job, record in zip((live, other), records, strict=True)
    )
    releases = str(records[0]["release"]), str(records[1]["release"])
    result = report.of(join(*sides), live_deciding, replay_deciding, releases, labelled.read(live))
    others = {field: _differing(live, other, archive, field, ranges) for field in OTHERS}
    remaining = inputs.remaining({part: end for part, (_, end) in ranges.items()}, replay.range)
    return {
        "name": replay.name,
        "range": ranges,
        "remaining": remaining,
        "not_kept": sum(start - both[part][0] for part, (start, _) in ranges.items()),
        **result,
        "others": others,
    }


def _differing(
    live: JobSettings, other: JobSettings, archive: LogArchive | None, field: str, ranges: columns.Ranges
) -> dict[str, int]:
    """Compare all records of an output for transactions in the ranges, as bytes."""
    found = []
    ranges = reading.kept(live, archive, [getattr(live.topics, field)], ranges)
    for job in (live, other):
        table = columns.parse(reading.values(job, archive, getattr(job.topics, field)), OTHERS[field])
        table = columns.within(table, columns.source_of(table), ranges, live.topics.transactions)
        found.append(Counter(table["value"].to_pylist()))
    one, two = found
    return {"records": one.total(), "differing": ((one - two) + (two - one)).total()}


def _deciding(settings: JobSettings, record: Record) -> Deciding:
    """Read a job's rollouts.

    Args:
        record: progress record of the job's key group 0, which names the features that its release computes,
            and the proposals that it does not use.
    """
    topic = settings.topics.model_rollouts
    with closing(clients.reader(settings, "fraud-replay")) as reader:
        records = [
            RolloutRecord(message.timestamp()[1], message.offset() or 0, message.value(), message.key())
            for message in follow.to_end(reader, TopicPartition(topic, 0, 0))
        ]
    reasons = last_record.set_aside(record)
    history = RolloutHistory.judged(records, reasons, settings.topics, record["features"])

    def champions(arrivals: NDArray[np.int64]) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
        plans, numbers = history.in_force(arrivals)
        models = np.array([plan.champion.model.digest for plan in plans], dtype=object)
        policies = np.array([plan.champion.policy.digest() for plan in plans], dtype=object)
        return models[numbers], policies[numbers]

    return champions

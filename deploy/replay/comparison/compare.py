"""The comparison of a replay with the live job: reads both outputs, and makes the report."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from deploy.replay import inputs
from deploy.replay.comparison import columns, labelled, reading, report
from deploy.replay.comparison.champions import deciding
from deploy.replay.comparison.differences import Side, join, side
from deploy.replay.record import Replay
from streaming_job.archive.followers import LogArchive, log_archive
from streaming_job.settings import JobSettings
from streaming_job.takeover.handover import newest_records

OTHERS: Mapping[str, pa.Schema] = {"dead_letters": columns.LETTER, "shadow_alerts": columns.SHADOW}
"""Outputs that are compared as a whole, by their fields of `Topics`."""


def compare(live: JobSettings, replay: Replay, say: Callable[[str], object]) -> dict[str, Any]:
    """Compare the alerts for the transactions that both jobs have decided.

    The live side is what is on the live topics, and in the archive in which the replay begins: after a switch
    the replay's own decisions, from the seam on.

    Raises:
        KafkaException: the brokers do not answer.
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
        deciding(job, record) for job, record in zip((live, other), records, strict=True)
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

"""The seam: the first progress record of each key group of a successor, made of its predecessor's last ones.

Pure. The successor may have another number of key groups; the topic of the transactions is the same. The
totals of all of the predecessor's groups are continued: those of its group g by group g modulo the number of
the successor's groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from streaming_job.group import last_record
from streaming_job.group.last_record import Record
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Offsets
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.totals import Totals
from streaming_job.progress.writer import GroupProgress


@dataclass(frozen=True)
class Predecessor:
    """The end of the output of a job that can no longer write."""

    records: Mapping[int, Record]
    """The last progress record of each of its key groups."""
    offsets: Offsets
    """Q of all partitions of the transactions."""
    commit_id: int
    """Greatest number of a Kafka transaction of its groups."""

    @property
    def query_id(self) -> str:
        """The query of its checkpoint."""
        return str(self.records[0]["query_id"])

    def tables(self, topic: str, home: int) -> Offsets:
        """Return Q of the tables for cards of a home; `topic` is that of the transactions."""
        record = self.records[home % len(self.records)]
        ends = {tp: end for tp, end in last_record.positions(record).items() if tp[0] != topic}
        own = last_record.by_home(record).get(home, {})
        return {tp: max(end, own.get(tp, 0)) for tp, end in ends.items()}


@dataclass(frozen=True)
class Successor:
    """The job that takes over."""

    job_id: str
    query_id: str
    key_groups: KeyGroups
    transactions: str
    """Topic of the transactions."""
    computed: tuple[str, ...]
    """Features that models may use, name:version."""


def first_records(before: Predecessor, after: Successor, now: int) -> dict[int, bytes]:
    """Return the first progress record of each of the successor's key groups, JSON (job-progress.v2).

    Args:
        before: the predecessor.
        after: the successor.
        now: wall clock, ms.
    """
    takeover = {
        "query_id": before.query_id,
        "release": before.records[0]["release"],
        "key_groups": len(before.records),
    }
    return {
        group: orjson.dumps(
            {
                **_record(before, after, group, now),
                "takeover": takeover,
            }
        )
        for group in range(after.key_groups.groups)
    }


def _record(before: Predecessor, after: Successor, group: int, now: int) -> dict[str, Any]:
    homes = after.key_groups.own(group)
    tables = {home: before.tables(after.transactions, home) for home in homes}
    ends = {tp: min(table[tp] for table in tables.values()) for table in tables.values() for tp in table}
    silent_before = [
        {
            "home": home,
            "offsets": [
                {"topic": topic, "partition": part, "offset": end} for (topic, part), end in table.items()
            ],
        }
        for home, table in tables.items()
    ]
    ends |= {(after.transactions, home): before.offsets.get((after.transactions, home), 0) for home in homes}
    entries = {
        (part["topic"], part["partition"]): part
        for record in before.records.values()
        for part in record["partitions"]
    }
    totals = Totals()
    for number in range(group, len(before.records), after.key_groups.groups):
        totals.add(Totals.from_json(before.records[number]["totals"]))
    last = {
        **{name: before.records[0].get(name) for name in ("rollout_id", "model", "applied")},
        "commit_id": before.commit_id,
        "rollouts_set_aside": before.records[0]["rollouts_set_aside"],
        "partitions": [entries[tp] for tp in sorted(ends) if tp in entries],
        "totals": orjson.loads(orjson.dumps(totals.to_json(), option=orjson.OPT_SERIALIZE_NUMPY)),
        "silent_before": silent_before,
    }
    progress = GroupProgress(
        after.job_id, after.query_id, group, after.key_groups.groups, last, computed=after.computed
    )
    record: dict[str, Any] = orjson.loads(
        progress.record(
            Outcome(),
            epoch=0,
            started_at=now,
            now=now,
            starts=ends,
            ends=ends,
            transactions_topic=after.transactions,
            table_lag={},
        )
    )
    return record

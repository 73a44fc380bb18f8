"""The seam: the first progress record of each key group of a successor, made of its predecessor's last ones.

Pure. The successor may have another number of key groups. Its transactions may also be in another topic,
number of partitions or by another partitioner: then the predecessor is drained, so all of its groups have
read the tables equally far. The totals of all of the predecessor's groups are continued: those of its group g
by group g modulo the number of the successor's groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from streaming_job.log.losses import NOTHING_LOST, Losses
from streaming_job.log.partitioner import KeyGroups, Layout
from streaming_job.log.records import Offsets
from streaming_job.progress import last_record
from streaming_job.progress.last_record import Record
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.record import fixed_fields
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
    layout: Layout
    """Where its transactions are."""

    @property
    def query_id(self) -> str:
        """The query of its checkpoint."""
        return str(self.records[0]["query_id"])

    @property
    def has_moved(self) -> bool:
        """Whether its transactions have been elsewhere, so that their log lacks the cards' first history."""
        return bool(self.records[0].get("takeover", {}).get("moved"))

    def tables(self, home: int) -> Offsets:
        """Return Q of the tables for cards of a home; equal for all homes if it is drained."""
        record = self.records[home % len(self.records)]
        ends = {tp: end for tp, end in last_record.positions(record).items() if tp[0] != self.layout.topic}
        own = last_record.by_home(record).get(home, {})
        return {tp: max(end, own.get(tp, 0)) for tp, end in ends.items()}


@dataclass(frozen=True)
class Successor:
    """The job that takes over."""

    job_id: str
    query_id: str
    key_groups: KeyGroups
    layout: Layout
    """Where its transactions are."""
    tables: tuple[str, ...]
    """Topics of the tables."""
    rollout_topics: tuple[str, ...]
    """See `FixedSettings`; the last one is one of the tables. If it is not the predecessor's, the record says
    nothing of rollouts: the first decision of the successor does."""
    computed: tuple[str, ...]
    """Features that models may use, name:version."""
    retired: tuple[str, ...] = ()
    """Topics whose records its group 0 refuses."""
    label_delay_ms: int | None = None
    """Label delay of its merchant facts; None: it keeps none."""
    facts_from: Mapping[int, Offsets] = field(default_factory=dict)
    """With merchant facts, by group: where its state ends in the topics of labels and facts."""
    losses: Losses = NOTHING_LOST
    """See `Rules`."""


def first_records(before: Predecessor, after: Successor, asked_by: str, now: int) -> dict[int, bytes]:
    """Return the first progress record of each of the successor's key groups, JSON (job-progress.v2).

    Args:
        now: wall clock, ms.
    """
    takeover = {
        "query_id": before.query_id,
        "release": before.records[0]["release"],
        "key_groups": len(before.records),
        "commit_id": before.commit_id + 1,
        "at": now,
        "asked_by": asked_by,
        "moved": before.layout != after.layout or before.has_moved,
    }
    left = last_record.left(before.records[0])
    if before.layout.topic != after.layout.topic:
        left.append(before.layout.topic)
    if left:
        takeover["left"] = left
    if before.layout != after.layout:
        topic, partitions = before.layout.topic, range(before.layout.partitions)
        ends = [before.offsets.get((topic, partition), 0) for partition in partitions]
        takeover["drained"] = {"layout": before.layout.to_json(), "ends": ends}
    return {group: _record(before, after, takeover, group, now) for group in range(after.key_groups.groups)}


def _record(
    before: Predecessor, after: Successor, takeover: Mapping[str, Any], group: int, now: int
) -> bytes:
    homes = after.key_groups.own(group)
    tables = {
        home: {tp: end for tp, end in before.tables(home).items() if tp[0] in after.tables} for home in homes
    }
    # a partition that a table has got lately may be known to some of the predecessor's groups only
    ends = {tp: min(at.get(tp, 0) for at in tables.values()) for table in tables.values() for tp in table}
    silent_before = [
        {
            "home": home,
            "offsets": [
                {"topic": topic, "partition": part, "offset": end} for (topic, part), end in table.items()
            ],
        }
        for home, table in tables.items()
    ]
    topic = after.layout.topic
    ends |= {(topic, home): before.offsets.get((topic, home), 0) for home in homes}
    # what the predecessor, if it keeps facts, has made of labels are facts of another topic
    ends |= after.facts_from.get(group, {})
    if group == 0:
        known = last_record.positions(before.records[0]) | before.offsets
        ends |= {tp: end for tp, end in known.items() if tp[0] in after.retired}
    entries = {
        (part["topic"], part["partition"]): part
        for record in before.records.values()
        for part in record["partitions"]
    }
    totals = Totals()
    for number in range(group, len(before.records), after.key_groups.groups):
        totals.add(Totals.from_json(before.records[number]["totals"]))
    is_same_line = (after.rollout_topics[-1], 0) in last_record.positions(before.records[0])
    of_rollouts = ["rollout_id", "model", "rollouts_set_aside"] if is_same_line else []
    if is_same_line and before.layout == after.layout:  # otherwise events apply from other offsets on
        of_rollouts.append("applied")
    last = {
        **{name: before.records[0][name] for name in of_rollouts if name in before.records[0]},
        "commit_id": before.commit_id,
        # a retired topic has no event time any more
        "partitions": [entries[tp] for tp in sorted(ends) if tp in entries and tp[0] not in after.retired],
        "totals": orjson.loads(orjson.dumps(totals.to_json(), option=orjson.OPT_SERIALIZE_NUMPY)),
        "silent_before": silent_before,
        "takeover": takeover,
    }
    progress = GroupProgress(
        after.job_id, after.query_id, group, after.key_groups.groups, last, computed=after.computed,
        fixed=fixed_fields(after.layout, after.label_delay_ms, after.losses, after.rollout_topics),
    )  # fmt: skip
    return progress.record(
        Outcome(),
        epoch=0,
        started_at=now,
        now=now,
        starts=ends,
        ends=ends,
        transactions_topic=topic,
        table_lag={},
    )

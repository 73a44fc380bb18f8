"""The last progress record of a key group, from which its next process continues. Pure.

The record is on the progress topic; the group's state holds a copy, which is older after a crash, but not
after a clean stop. The copy counts if the topic has lost its records.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from streaming_job.log.records import Arrived, Offsets, PartitionId
from streaming_job.runtime.checkpoint_errors import CheckpointError

Record = Mapping[str, Any]
COMMIT_ID = "commit_id"
"""Name in `Meta.extra`: the number of the group's last Kafka transaction."""
FACTS_COMMIT = "facts_commit"
"""Name in `Meta.extra`, until a group that takes over has its output: number of the Kafka transaction, of the
replay whose state it has, with which the facts in the state end."""
LAST = "progress"
"""Name in `Meta.extra`: the progress record of that transaction, JSON."""


def newest(on_topic: Record | None, in_state: str | None) -> Record | None:
    """Return the newer of the record on the topic and the one in the state; None if there is neither.

    Args:
        on_topic: the newest record on the topic; None without one.
        in_state: record in the state, JSON; None without one.
    """
    stored: Record | None = orjson.loads(in_state) if in_state else None
    if stored is None or (on_topic is not None and on_topic["commit_id"] >= stored["commit_id"]):
        return on_topic
    return stored


def positions(record: Record | None) -> Offsets:
    """Return Q of all inputs as a record reports it; for the tables, Q is read from nowhere else."""
    parts = record["partitions"] if record is not None else ()
    return {(part["topic"], part["partition"]): part["end_offset"] for part in parts}


def newest_read(record: Record | None) -> dict[PartitionId, Arrived]:
    """Return the last record read of each partition of the inputs, as a progress record reports it."""
    parts = record["partitions"] if record is not None else ()
    return {
        (part["topic"], part["partition"]): Arrived(**part["newest"]) for part in parts if "newest" in part
    }


def by_home(record: Record | None) -> dict[int, Offsets]:
    """Return Q of the tables for the homes where it is greater than `positions`; see `Silence`."""
    homes = record.get("silent_before", ()) if record is not None else ()
    return {
        home["home"]: {(part["topic"], part["partition"]): part["offset"] for part in home["offsets"]}
        for home in homes
    }


def left(record: Record) -> list[str]:
    """Return the topics that the transactions have left, oldest first, also those that no job follows now."""
    return list(record.get("takeover", {}).get("left", ()))


def set_aside(record: Record | None) -> dict[int, str]:
    """Return the proposals that a record lists as set aside, offset -> reason, for `ModelJudge`."""
    reasons = record["rollouts_set_aside"] if record is not None else {}
    return {int(offset): reason for offset, reason in reasons.items()}


def require_labels(record: Record | None, commit_id: int) -> None:
    """Check, in a job with merchant facts, that the record is that of the group's last Kafka transaction.

    Args:
        record: the newest record.
        commit_id: number of the group's last transaction.

    Raises:
        CheckpointError: the last record is lost, so it is unknown which labels have become facts.
    """
    last = record["commit_id"] if record is not None else 0
    if last < commit_id:
        raise CheckpointError(
            f"the group has written {commit_id} Kafka transactions, but its last progress record has number "
            f"{last}, so it is unknown which labels are facts already; restore the progress topic, or use "
            "another job id"
        )

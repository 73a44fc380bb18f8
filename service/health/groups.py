"""Views over the newest progress records of all key groups. Pure."""

from collections.abc import Mapping
from typing import Any

from streaming_job.log.records import PartitionId

Groups = Mapping[int, Mapping[str, Any]]
"""Key group -> its newest progress record (job-progress.v2)."""


def key_groups(groups: Groups) -> int:
    """Return the job's number of key groups, including those without a record; 0 before the first record."""
    return max((record["key_groups"] for record in groups.values()), default=0)


def partitions(groups: Groups) -> list[dict[str, Any]]:
    """Merge the records' `partitions` into one entry for each input partition.

    Every group reads the partitions of a table. The merged entry of such a partition has the end offset of
    the slowest group, and the newest time at which any group read a new record.
    """
    merged: dict[PartitionId, dict[str, Any]] = {}
    for record in groups.values():
        for entry in record["partitions"]:
            partition = (entry["topic"], entry["partition"])
            total = merged.setdefault(partition, dict(entry))
            total["end_offset"] = min(total["end_offset"], entry["end_offset"])
            total["active_at"] = max(total["active_at"] or 0, entry["active_at"] or 0) or None
    return [merged[partition] for partition in sorted(merged)]


def end_offsets(groups: Groups) -> dict[PartitionId, int]:
    """Return (topic, partition) -> offset up to which every group that reads the partition has read it."""
    return {(entry["topic"], entry["partition"]): entry["end_offset"] for entry in partitions(groups)}

"""What the newest progress records of a job's key groups say together: pure."""

from collections.abc import Mapping
from typing import Any

from service.health.waiting import Place

Groups = Mapping[int, Mapping[str, Any]]
"""Key group -> its newest progress record (job-progress.v2)."""


def key_groups(groups: Groups) -> int:
    """How many key groups the job has, with those that have not written yet; 0 before any has."""
    return max((record["key_groups"] for record in groups.values()), default=0)


def partitions(groups: Groups) -> list[dict[str, Any]]:
    """The records' `partitions`, one entry for each input partition.

    A partition of a table is read by every group: it has been read as far as the slowest has, and was active
    when any found something new in it.
    """
    merged: dict[Place, dict[str, Any]] = {}
    for record in groups.values():
        for entry in record["partitions"]:
            place = (entry["topic"], entry["partition"])
            known = merged.setdefault(place, dict(entry))
            known["end_offset"] = min(known["end_offset"], entry["end_offset"])
            known["active_at"] = max(known["active_at"] or 0, entry["active_at"] or 0) or None
    return [merged[place] for place in sorted(merged)]


def end_offsets(groups: Groups) -> dict[Place, int]:
    """(topic, partition) -> offset up to which every group that reads it has taken it in."""
    return {(entry["topic"], entry["partition"]): entry["end_offset"] for entry in partitions(groups)}

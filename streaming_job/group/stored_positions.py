"""P in the metadata of a group's state: the offsets up to which the state includes the log."""

from collections.abc import Mapping

from feature_store.state.journal import Meta
from streaming_job.log.records import Offsets

POSITIONS = "positions"
"""Name in `Meta.extra`."""


def save_positions(meta: Meta, positions: Offsets) -> None:
    """Store P in `meta`."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    meta.extra[POSITIONS] = by_topic


def positions_of(meta: Meta) -> Offsets:
    """Return P from `meta`; empty before the first epoch has ended."""
    by_topic: Mapping[str, Mapping[str, int]] = meta.extra.get(POSITIONS, {})
    return {
        (topic, int(partition)): offset
        for topic, offsets in by_topic.items()
        for partition, offset in offsets.items()
    }

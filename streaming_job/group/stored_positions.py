"""P in the metadata of a group's state: offsets up to which it includes the log, and ids of the topics.

A state that was put together from those of a predecessor includes the tables up to different positions,
depending on the key group that a card came from; P is the least of them.
"""

from collections.abc import Mapping

from feature_store.state.journal import Meta
from streaming_job.group.silence import Silence
from streaming_job.log.records import Offsets

POSITIONS = "positions"
INHERITED = "inherited_positions"
TOPIC_IDS = "topic_ids"
"""Names in `Meta.extra`."""


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


def save_topic_ids(meta: Meta, ids: Mapping[str, str]) -> None:
    """Store Kafka's ids of the topics in `meta`, beside those of topics that were read before."""
    meta.extra[TOPIC_IDS] = {**topic_ids_of(meta), **ids}


def topic_ids_of(meta: Meta) -> dict[str, str]:
    """Return Kafka's ids of the topics in which P counts, by topic; empty before the first epoch."""
    ids: dict[str, str] = meta.extra.get(TOPIC_IDS, {})
    return ids


def save_inherited(meta: Meta, by_home: Mapping[int, Offsets]) -> None:
    """Store positions in the tables in `meta`, by home (see `Silence`)."""
    meta.extra[INHERITED] = [
        {"home": home, "offsets": [[topic, partition, offset] for (topic, partition), offset in at.items()]}
        for home, at in by_home.items()
    ]


def inherited_positions(meta: Meta) -> Silence:
    """Return up to where the state includes the tables for homes where this is beyond P."""
    positions = positions_of(meta)
    by_home = {
        home["home"]: {(topic, partition): offset for topic, partition, offset in home["offsets"]}
        for home in meta.extra.get(INHERITED, ())
    }
    if all(offset <= positions.get(tp, 0) for at in by_home.values() for tp, offset in at.items()):
        meta.extra.pop(INHERITED, None)
        return Silence({})
    return Silence(positions, by_home)

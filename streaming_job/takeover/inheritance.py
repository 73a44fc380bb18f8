"""The first state of a successor's key group, put together from pieces of its predecessor's checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass

from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import Meta, PieceSink, PieceStore, load_meta, rebuild, seal, write_whole
from feature_store.state.merging import merge
from streaming_job.decide.applied_events import AppliedEvents
from streaming_job.decide.feature_counts import FeatureCounts
from streaming_job.decide.trial_units import TrialUnits
from streaming_job.decode import snapshots
from streaming_job.group import settings_in_force
from streaming_job.group.core import ROLLOUTS, SNAPSHOT_END
from streaming_job.group.opening import Opening
from streaming_job.group.silence import Silence
from streaming_job.group.stored_positions import (
    inherited_positions,
    positions_of,
    save_inherited,
    save_positions,
    save_topic_ids,
    topic_ids_of,
)
from streaming_job.group.trial_pieces import APPLIED, FEATURES, UNITS
from streaming_job.log.partitioner import KeyGroups, Layout
from streaming_job.log.records import Offsets
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.takeover.inherited_facts import copy_facts

Stores = Mapping[int, PieceStore]
"""The pieces of the predecessor's key groups, by group."""


@dataclass(frozen=True)
class Former:
    """The predecessor as its checkpoint describes it."""

    layout: Layout
    groups: int
    """Number of its key groups."""

    @property
    def key_groups(self) -> KeyGroups:
        """Its mapping of cards."""
        return self.layout.key_groups(self.groups)


def receivers(former: Former, layout: Layout, groups: int) -> list[list[int]]:
    """Return for each of the predecessor's key groups the successor's groups that may get cards of it.

    >>> six = Layout("transactions", Partitioner.MURMUR2, 6)
    >>> receivers(Former(six, 2), six, groups=4)
    [[0, 2], [1, 3]]
    >>> receivers(Former(six, 2), Layout("new", Partitioner.MURMUR2, 12), groups=4)
    [[0, 1, 2, 3], [0, 1, 2, 3]]
    """
    if layout != former.layout:
        return [list(range(groups))] * former.groups
    return [
        sorted({home % groups for home in former.key_groups.own(group)}) for group in range(former.groups)
    ]


def inherit(opening: Opening, stores: Stores, former: Former, meta: Meta, store: PieceSink) -> None:
    """Run a group's first epoch: write the cards of its partitions as they were in the predecessor's groups.

    The predecessor's groups are rebuilt one after another, so not more than one of them is in memory beside
    the new state.

    Args:
        meta: of the new state; updated.
        store: gets the pieces.

    Raises:
        CheckpointError: a group of the predecessor has no state yet, or has read other topics; or the cards
            move, and the predecessor is not drained.
    """
    rules, settings = opening.rules, opening.settings
    state = GroupState(MemoryArena(), settings.allowed_lateness_ms, keeps_ids=rules.merchants is not None)
    homes = rules.key_groups.own(opening.group)
    takers = receivers(former, rules.layout, rules.key_groups.groups)
    moves = former.layout != rules.layout
    """Whether the cards move between partitions."""
    applied, units, features = AppliedEvents(), TrialUnits(), FeatureCounts()
    by_home: dict[int, Offsets] = {}
    own: Offsets = {}
    rollouts: tuple[int, bytes | None] | None = None
    inputs = {former.layout.topic, *rules.tables}
    for group, pieces in sorted(stores.items()):
        old = load_meta(pieces)
        positions = positions_of(old)
        if not positions:
            raise CheckpointError(
                f"key group {group} of the predecessor's checkpoint has no state yet; wait for an epoch"
            )
        is_same_line = (rules.topics.model_rollouts, 0) in positions
        # a replay may have rollouts of its own, which it then reads from their beginning
        others = {rules.topics.model_rollouts} if not is_same_line and not opening.takes_over else set()
        others.add(rules.topics.record_schemas)  # which are few, and read from their beginning
        _require_same_inputs(positions, inputs - others)
        mine = homes if moves else [home for home in homes if home % former.groups == group]
        part = GroupState(MemoryArena(), settings.allowed_lateness_ms, keeps_ids=rules.merchants is not None)
        rebuild(pieces, old, part)
        merge(state, part, mine, former.key_groups.homes_of, rules.key_groups.homes_of)
        # in other partitions a trial's units begin anew, and events apply from other offsets on
        kept = [] if moves else mine
        if rules.merchants is not None:  # the group has this one predecessor (`initial_state.former`)
            copy_facts(old, pieces, meta, store)
        if is_same_line:
            if takers[group][0] == opening.group and (blob := pieces.get(FEATURES)):
                features.include(FeatureCounts.decode(blob))
            if blob := pieces.get(UNITS):
                units.take(TrialUnits.decode(blob), kept)
            _add_applied(applied, pieces.get(APPLIED), kept)
            # the state knows the rollouts as far as the group that had read the fewest
            read = positions[rules.topics.model_rollouts, 0]
            if rollouts is None or read < rollouts[0]:
                rollouts = read, pieces.get(ROLLOUTS)
        tables = {
            tp: offset
            for tp, offset in positions.items()
            if tp[0] in rules.tables and tp[0] != rules.topics.record_schemas
        }
        known = inherited_positions(old)  # of a predecessor that has inherited its state, too
        if moves:
            _require_drained(by_home, tables, known)
        by_home |= {
            home: {
                # the rollout history is of a group, not of a card
                tp: offset if tp[0] == rules.topics.model_rollouts else max(offset, known.before(tp, home))
                for tp, offset in tables.items()
            }
            for home in mine
        }
        own |= {
            tp: offset
            for tp, offset in positions.items()
            if tp in opening.own_partitions or tp[0] in opening.retired
        }
        save_topic_ids(meta, topic_ids_of(old))
        end = snapshots.first_end(meta.extra.get(SNAPSHOT_END), old.extra.get(SNAPSHOT_END))
        meta.extra |= {} if end is None else {SNAPSHOT_END: end}
    state.end_replay()
    write_whole(store, meta, state)
    least = {tp: min(at.get(tp, 0) for at in by_home.values()) for at in by_home.values() for tp in at}
    # partitions that the predecessor did not have are read from their beginning
    save_positions(meta, dict.fromkeys(opening.own_partitions, 0) | own | least)
    save_inherited(meta, by_home)
    settings_in_force.store_first(meta, settings.decisive)
    if rollouts is not None and rollouts[1] is not None:
        store.put(ROLLOUTS, rollouts[1])
    store.put(APPLIED, applied.encode())
    store.put(FEATURES, features.encode())
    store.put(UNITS, units.encode() if units else b"")
    seal(store, meta)


def _require_same_inputs(positions: Offsets, wanted: set[str]) -> None:
    """Check that a state has read the wanted topics; it may have read others, too, as a replay's rollouts."""
    read = {topic for topic, _ in positions}
    if not wanted <= read:
        raise CheckpointError(
            f"the state in FRAUD_PREDECESSOR_CHECKPOINT is of the topics {', '.join(sorted(read))}, this job "
            f"reads {', '.join(sorted(wanted))}; correct the setting or FRAUD_TOPICS__..., and begin with an "
            "empty checkpoint"
        )


def _require_drained(before: Mapping[int, Offsets], tables: Offsets, known: Silence) -> None:
    """Check that all of the predecessor's groups have read the tables equally far."""
    if known.by_home or any(at != tables for at in before.values()):
        raise CheckpointError(
            "the key groups of the predecessor's checkpoint have read the tables up to different positions, "
            "so their cards cannot move to other partitions: drain the predecessor (FRAUD_DRAIN=true), then "
            "begin with an empty checkpoint"
        )


def _add_applied(applied: AppliedEvents, blob: bytes | None, partitions: list[int]) -> None:
    for offset, held in AppliedEvents.decode(blob).held_from.items() if blob else ():
        mine = {partition: first for partition, first in held.items() if partition in partitions}
        applied.held_from[offset] = applied.held_from.get(offset, {}) | mine

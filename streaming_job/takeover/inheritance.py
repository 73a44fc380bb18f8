"""The first state of a successor's key group, put together from pieces of its predecessor's checkpoint."""

from collections.abc import Mapping

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
from streaming_job.group.stored_positions import (
    inherited_positions,
    positions_of,
    save_inherited,
    save_positions,
)
from streaming_job.group.trial_pieces import APPLIED, FEATURES, UNITS
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Offsets
from streaming_job.runtime.checkpoint import CheckpointError

Stores = Mapping[int, PieceStore]
"""The pieces of the predecessor's key groups, by group."""


def receivers(old_groups: int, key_groups: KeyGroups) -> list[list[int]]:
    """Return for each of the predecessor's key groups the successor's groups that have partitions of it.

    >>> receivers(2, KeyGroups(Partitioner.MURMUR2, partitions=6, groups=3))
    [[0, 1, 2], [0, 1, 2]]
    >>> receivers(2, KeyGroups(Partitioner.MURMUR2, partitions=6, groups=4))
    [[0, 2], [1, 3]]
    """
    return [
        sorted({home % key_groups.groups for home in range(group, key_groups.partitions, old_groups)})
        for group in range(old_groups)
    ]


def inherit(opening: Opening, stores: Stores, groups: int, meta: Meta, store: PieceSink) -> None:
    """Run a group's first epoch: write the cards of its partitions as they were in the predecessor's groups.

    The predecessor's groups are rebuilt one after another, so not more than one of them is in memory beside
    the new state.

    Args:
        opening: the group and its job.
        stores: of those groups that have partitions of this one.
        groups: number of the predecessor's key groups.
        meta: of the new state; updated.
        store: gets the pieces.

    Raises:
        CheckpointError: a group of the predecessor has no state yet.
        StateDamagedError: its pieces are damaged.
    """
    rules, settings = opening.rules, opening.settings
    state = GroupState(MemoryArena(), settings.allowed_lateness_ms, keeps_ids=settings.merchant_facts)
    homes, takers = rules.key_groups.own(opening.group), receivers(groups, rules.key_groups)
    applied, units, features = AppliedEvents(), TrialUnits(), FeatureCounts()
    by_home: dict[int, Offsets] = {}
    own: Offsets = {}
    rollouts: tuple[int, bytes | None] | None = None
    for group, pieces in sorted(stores.items()):
        old = load_meta(pieces)
        positions = positions_of(old)
        if not positions:
            raise CheckpointError(
                f"key group {group} of the predecessor's checkpoint has no state yet; wait for an epoch"
            )
        if takers[group][0] == opening.group and (blob := pieces.get(FEATURES)):
            features.include(FeatureCounts.decode(blob))
        mine = [home for home in homes if home % groups == group]
        part = GroupState(MemoryArena(), settings.allowed_lateness_ms, keeps_ids=settings.merchant_facts)
        rebuild(pieces, old, part)
        merge(state, part, mine)
        if blob := pieces.get(UNITS):
            units.take(TrialUnits.decode(blob), mine)
        _add_applied(applied, pieces.get(APPLIED), mine)
        tables = {tp: offset for tp, offset in positions.items() if tp[0] != rules.topics.transactions}
        known = inherited_positions(old)  # of a predecessor that has inherited its state, too
        by_home |= {
            home: {tp: max(offset, known.before(tp, home)) for tp, offset in tables.items()} for home in mine
        }
        own |= {tp: positions[tp] for tp in opening.own_partitions if tp[1] in mine}
        # the state knows the rollouts as far as the group that had read the fewest
        read = tables.get((rules.topics.model_rollouts, 0), 0)
        if rollouts is None or read < rollouts[0]:
            rollouts = read, pieces.get(ROLLOUTS)
        end = snapshots.first_end(meta.extra.get(SNAPSHOT_END), old.extra.get(SNAPSHOT_END))
        meta.extra |= {} if end is None else {SNAPSHOT_END: end}
    state.end_replay()
    write_whole(store, meta, state)
    least = {tp: min(at.get(tp, 0) for at in by_home.values()) for at in by_home.values() for tp in at}
    save_positions(meta, own | least)
    save_inherited(meta, by_home)
    settings_in_force.store_first(meta, settings.decisive)
    if rollouts is not None and rollouts[1] is not None:
        store.put(ROLLOUTS, rollouts[1])
    store.put(APPLIED, applied.encode())
    store.put(FEATURES, features.encode())
    store.put(UNITS, units.encode() if units else b"")
    seal(store, meta)


def _add_applied(applied: AppliedEvents, blob: bytes | None, partitions: list[int]) -> None:
    for offset, held in AppliedEvents.decode(blob).held_from.items() if blob else ():
        mine = {partition: first for partition, first in held.items() if partition in partitions}
        applied.held_from[offset] = applied.held_from.get(offset, {}) | mine

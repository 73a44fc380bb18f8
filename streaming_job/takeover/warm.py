"""A successor's key group before the takeover: decides the log in silence, up to the predecessor's level.

The group writes no output and fences no producer. Each epoch opens it anew, follows the level as it rises,
and saves the state; so a job that is killed meanwhile continues from its last epoch.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from feature_store.state.group_state import GroupState
from feature_store.state.journal import Meta, PieceStore
from streaming_job.group.core import GroupCore
from streaming_job.group.limited_tables import LimitedTables
from streaming_job.group.loop import Follower
from streaming_job.group.opening import Connections, Opening, require_log
from streaming_job.group.silence import Silence
from streaming_job.log.records import Offsets
from streaming_job.progress.outcome import Outcome

if TYPE_CHECKING:
    from streaming_job.takeover.predecessor_watch import PredecessorWatch

EVERYTHING = 1 << 62
"""An offset after all records."""
LOOK_S = 0.2
"""Interval at which the level is looked up."""


class Mute:
    """A `loop.Committer` that writes nothing."""

    def commit(self, take_outcome: Callable[[], Outcome], ends: Offsets, table_lag: dict[str, int]) -> None:
        """Drop the outcome."""
        take_outcome()


class WarmGroup:
    """A key group that this process serves in silence, for one epoch."""

    def __init__(
        self,
        opening: Opening,
        connections: Connections,
        state: GroupState,
        meta: Meta,
        store: PieceStore,
        watch: "PredecessorWatch",
    ) -> None:
        """Open the group.

        Args:
            connections: the group's connections to the brokers, which the caller closes.
            state: the group's state, as of `meta.token`.
            meta: metadata of the persisted pieces; updated in place.
            store: the persisted pieces.
        """
        self._watch, self._store, self._clock = watch, store, opening.clock
        self._looked = opening.clock()
        watch.look()
        self._set_aside = dict(watch.level.set_aside)
        own, level = opening.own_partitions, watch.level.offsets()
        retired = {tp: end for tp, end in level.items() if tp[0] in opening.retired}
        positions, snapshot_end = require_log(opening, connections, meta, retired)
        tables = {tp: offset for tp, offset in positions.items() if tp not in own}
        silence = Silence(dict.fromkeys(tables, EVERYTHING))
        core = GroupCore(opening.group, opening.rules, state, meta, store, silence, self._set_aside)
        core.note_snapshot_end(snapshot_end)
        transactions = {tp: positions[tp] for tp in own}
        self._tables = LimitedTables(connections.tables(tables), {**tables, **level})
        self._follower = Follower(
            core,
            connections.transactions(dict(transactions)),
            self._tables,
            Mute(),
            opening.pace,
            {},
            clock=opening.clock,
        )
        self._floor = positions
        self._follow(level)

    @property
    def is_outdated(self) -> bool:
        """Whether the group has to be opened anew: the predecessor has set other proposals aside."""
        return dict(self._watch.level.set_aside) != self._set_aside

    @property
    def is_level(self) -> bool:
        """Whether the state has reached the level that was looked up last."""
        positions = self._follower.positions
        return all(positions.get(tp, 0) >= offset for tp, offset in self._followed.items())

    def advance(self) -> None:
        """Take one turn; see `Follower.advance`."""
        if self._clock() - self._looked >= LOOK_S:
            self._looked = self._clock()
            self._watch.look()
            if not self.is_outdated:
                self._follow(self._watch.level.offsets())
        self._follower.advance(self._store)

    def cut(self) -> Offsets:
        """Save the state; return P."""
        return self._follower.cut(self._store)

    def _follow(self, level: Offsets) -> None:
        # a level that lacks a group's older records may be behind P
        offsets = {tp: max(offset, level.get(tp, 0)) for tp, offset in self._floor.items()}
        self._tables.raise_to(offsets)
        self._follower.stay_silent(offsets)
        self._followed = offsets

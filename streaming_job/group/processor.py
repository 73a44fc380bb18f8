"""The Spark stateful processor of key groups: a control row starts each epoch; the state is one MapState."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import orjson
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructType

from feature_store.catalogue import names_of
from feature_store.errors import FraudError
from feature_store.merchants.catalogue import computed
from feature_store.state.arena import layout_digest
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, load_meta
from models import loading
from models.errors import ModelUnavailableError
from models.registry import ModelRef
from models.scoring import Scorer
from streaming_job.facts.record import FactError
from streaming_job.group import settings_in_force
from streaming_job.group.connections import KafkaConnections
from streaming_job.group.opening import OpenGroup, Opening, begin, change_settings, require_log
from streaming_job.group.placement import grouping_values
from streaming_job.group.rules import Rules, limits_of, merchants_of
from streaming_job.group.serving import Serving
from streaming_job.group.stored_positions import positions_of
from streaming_job.group.working_copy import WorkingCopy
from streaming_job.log.errors import LogError
from streaming_job.log.losses import NOTHING_LOST, Losses
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Offsets, name_of
from streaming_job.progress.last_record import FACTS_COMMIT
from streaming_job.runtime import pauses
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.runtime.epochs import Address, DriverWatch, Epoch
from streaming_job.runtime.failpoints import Failpoint, reach
from streaming_job.runtime.workers import residents
from streaming_job.runtime.workers.warm_up import freeze
from streaming_job.settings import JobSettings
from streaming_job.takeover.inheritance import Former, inherit
from streaming_job.takeover.inherited_facts import require_stopped
from streaming_job.takeover.predecessor_watch import PredecessorWatch
from streaming_job.takeover.warm import WarmGroup
from streaming_job.transaction.writer import FencedError
from streaming_job.transaction.written import OtherQueryError

log = logging.getLogger(__name__)

SUMMARY_SCHEMA = (
    "key_group int, commits long, transactions long, alerts long, dead_letters long, positions string"
)
"""Schema of the summary rows: one row for each group and epoch."""
NOTHING: dict[str, Any] = {"commits": 0, "transactions": 0, "alerts": 0, "dead_letters": 0, "positions": "{}"}
"""Summary of an epoch that only stores P or settings."""
VERDICTS = (LogError, CheckpointError, OtherQueryError, FactError, FencedError, pauses.StoppedError)
"""Errors that a new attempt of the task cannot mend: they end the job at the first attempt."""
# type objects, because each task would send a DDL string to the JVM for parsing
_NAME = StructType().add("name", StringType())
_BLOB = StructType().add("blob", BinaryType())
MODEL_PATIENCE_S, MODEL_RETRY_S = 60.0, 2.0
"""Seconds for which loading a champion is retried while registry or files cannot be reached, and seconds
between retries."""
PIECES = "pieces"
"""Name of the state variable that holds a key group's pieces."""
STATE_TIMEOUT_S = 60.0
"""Longest wait for an answer of Spark's state store."""
EPOCH, QUERY = "streaming.sql.batchId", "sql.streaming.queryId"
"""Names of Spark's local properties that give a task its epoch and its query id."""
LEAST_WARM_S = 0.5
"""Time for which a group decides in silence in each epoch, at least."""
TAKES_OVER = "fraud.takesOver"
"""Name of the local property that the driver sets while the output is still that of a predecessor."""


class StateStoreError(FraudError):
    """Spark's state store has not answered a worker for a minute: its thread ended, as on a full disk.

    See the log above it, make room, start the job again; nothing is lost.
    """


class Pieces:
    """A Spark MapState as a `PieceStore`.

    Raises:
        StateStoreError: raised by every method after STATE_TIMEOUT_S without an answer.
    """

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: one variable, because each costs milliseconds an epoch."""
        # the JVM's thread that answers dies of an error such as a full disk, and leaves the connection open
        handle._statefulProcessorApiClient._client_socket.settimeout(STATE_TIMEOUT_S)
        self._state: Any = _answer(handle.getMapState, PIECES, _NAME, _BLOB)

    def get(self, name: str) -> bytes | None:
        """Return the piece of a name; None if there is none."""
        row = _answer(self._state.getValue, (name,))
        return bytes(row[0]) if row is not None else None

    def put(self, name: str, blob: bytes) -> None:
        """Add or replace the piece of a name."""
        _answer(self._state.updateValue, (name,), (blob,))

    def remove(self, name: str) -> None:
        """Remove the piece of a name."""
        _answer(self._state.removeKey, (name,))


def _answer(request: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return request(*arguments)
    except TimeoutError as fault:
        raise StateStoreError(
            f"Spark's state store has not answered for {STATE_TIMEOUT_S:.0f} s; see the log above, a disk may"
            " be full; remove the cause, then start the job again; nothing is lost"
        ) from fault


def _query_id() -> str:
    """Return the id of the running task's query."""
    task = TaskContext.get()
    assert task is not None
    return str(task.getLocalProperty(QUERY))


def _text(positions: Offsets) -> str:
    offsets = {name_of(tp): offset for tp, offset in sorted(positions.items())}
    return orjson.dumps(offsets).decode()


_served: Serving | None = None
"""The key group that this process serves."""
residents.activities.append(lambda: _served is not None and _served.is_alive)
_models: set[Path] = set()
"""Local copies of the models that this process has loaded."""
_warmed: dict[int, Offsets] = {}
"""P of each key group at the beginning of the newest epoch that it has spent in silence."""


@cache  # a process that is not a resident may serve several groups, one after the other
def _copy(directory: Path, lateness_ms: int, keeps_ids: bool) -> WorkingCopy:
    return WorkingCopy(directory, lateness_ms, keeps_ids=keeps_ids)


@lru_cache(maxsize=8)
def _load_once(ref: ModelRef, tracking_uri: str, cache_dir: Path, names: tuple[str, ...]) -> Scorer:
    """Load the scorer of a model, for rows with the columns `names`; without retries.

    Raises:
        ModelError: the model cannot be loaded, or must not decide.
    """
    return loading.load(ref, tracking_uri, cache_dir).on(names)


def load_patiently(ref: ModelRef, tracking_uri: str, cache_dir: Path, names: tuple[str, ...]) -> Scorer:
    """Load the scorer of a champion, with retries while it cannot be reached; the group waits.

    Raises:
        ModelUnavailableError: registry or files could not be reached for MODEL_PATIENCE_S.
        ModelError: the model cannot be loaded for another reason, or must not decide.
        StoppedError: the job was told to stop.
    """
    begun = time.monotonic()
    while True:
        try:
            return _load_once(ref, tracking_uri, cache_dir, names)
        except ModelUnavailableError as fault:
            if time.monotonic() - begun > MODEL_PATIENCE_S:
                raise
            log.warning("no decisions until model %s %s can be loaded: %s", ref.name, ref.version, fault)
        pauses.pause(MODEL_RETRY_S)


def _opened(opening: Opening, state: GroupState, meta: Meta, pieces: Pieces, rebuilds: int) -> OpenGroup:
    connections = KafkaConnections(opening)
    try:
        return OpenGroup(opening, connections, state, meta, pieces, rebuilds)
    except BaseException:
        connections.close()
        raise


class GroupProcessor(StatefulProcessor):
    """The stateful processor of a key group: opens it, and saves the state that its loop stages."""

    def __init__(
        self,
        settings: JobSettings,
        key_groups: KeyGroups,
        address: Address,
        instance: str,
        predecessor: Former | None = None,
        until: Offsets | None = None,
        losses: Losses = NOTHING_LOST,
        rollout_topics: tuple[str, ...] = (),
    ) -> None:
        """Hold what a worker needs; Spark pickles the processor for its workers.

        Args:
            instance: id of this run of the job.
            predecessor: the predecessor whose state is the initial one (`takeover.initial_state`); None:
                there is none.
            until: see `Opening`.
            losses: see `Rules`.
            rollout_topics: see `Rules`.
        """
        self._predecessor, self._until = predecessor, until
        self._losses, self._rollout_topics = losses, rollout_topics
        self._inherited: dict[int, MemoryPieces] = defaultdict(MemoryPieces)
        self._settings, self._key_groups = settings, key_groups
        self._address, self._instance = address, instance
        self._groups = {value: group for group, value in enumerate(grouping_values(key_groups.groups))}

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._pieces = Pieces(handle)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        """Keep a piece of the predecessor's state for the first epoch."""
        self._inherited[initialState.old_group].put(initialState.name, bytes(initialState.blob))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Run one epoch of one key group; yield its summary."""
        for _ in rows:
            pass  # a control row has no content: it only starts the epoch
        task = TaskContext.get()
        assert task is not None
        group, epoch = self._groups[key[0]], int(task.getLocalProperty(EPOCH) or 0)
        with Epoch(self._address, epoch) as running, pauses.ended_by(running.must_stop):
            try:
                opening = self._opening(group, takes_over=bool(task.getLocalProperty(TAKES_OVER)))
                summary = self._follow(opening, running)
            except VERDICTS as fault:
                log.error("key group %d: %s", group, fault)
                running.report(fault)
                raise
        yield Row(key_group=group, **summary)

    def _follow(self, opening: Opening, epoch: Epoch) -> dict[str, Any]:
        global _served
        pieces, served, group = self._pieces, _served, opening.group
        meta = load_meta(pieces)
        if served is not None and (served.group, served.token) != (group, meta.token):
            # Spark has not committed the last epoch, another process has served the group since this one did,
            # or this one now serves another group
            served.end()
            self._copy(served.group).release(None)
            _served = served = None
        if not positions_of(meta) and self._inherited:
            assert self._predecessor is not None
            inherit(opening, self._inherited, self._predecessor, meta, pieces)
            self._inherited.clear()
            return NOTHING
        if not positions_of(meta):
            with closing(KafkaConnections(opening)) as connections:
                begin(opening, connections, meta, pieces)
            return NOTHING
        if not settings_in_force.are_stored(meta, self._settings.decisive):
            with closing(KafkaConnections(opening)) as connections:
                change_settings(opening, connections, meta, pieces)
            return NOTHING
        is_heir = opening.takes_over and opening.rules.merchants is not None
        if is_heir or FACTS_COMMIT in meta.extra:  # also when it is opened: until then the replay may go on
            require_stopped(opening, meta)
        if is_heir:  # facts are written aloud, so the group does not warm up
            with closing(KafkaConnections(opening)) as connections:
                require_log(opening, connections, meta)  # before the predecessor is fenced
            return {**NOTHING, "positions": _text(positions_of(meta))}
        if opening.takes_over:
            return {**NOTHING, "positions": _text(self._warm(opening, meta, pieces, epoch))}
        if served is None:
            _served = served = self._serve(opening, meta, pieces, epoch.number)
        try:
            cut = served.save(epoch, pieces)
        except BaseException:
            served.give_up()
            raise
        reach(Failpoint.DELTA)
        if cut.is_last:
            self._copy(group).release(served.join())
            _served = None
        for model in list(_models):
            loading.mark_used(model)
        return {**cut.summary, "positions": _text(cut.positions)}

    def _warm(self, opening: Opening, meta: Meta, pieces: Pieces, epoch: Epoch) -> Offsets:
        """Decide in silence for an epoch; return P.

        The epoch ends early once all groups have reached the predecessor's level: then the job takes over. A
        group that stays where it is, because the predecessor ended before its level, does not ask for that.
        """
        begun = positions_of(meta)
        moves, _warmed[opening.group] = _warmed.get(opening.group) != begun, begun
        copy = self._copy(opening.group)
        state = copy.take(meta, pieces)
        with ExitStack() as stack:
            stack.callback(lambda: copy.release(released))
            released: Meta | None = None
            connections = stack.enter_context(closing(KafkaConnections(opening)))
            watch = stack.enter_context(closing(PredecessorWatch(self._settings)))
            group = WarmGroup(opening, connections, state, meta, pieces, watch)
            until = time.monotonic() + LEAST_WARM_S
            # on a busy machine the opening may take as long as an epoch, and nothing would be decided
            while not epoch.is_over() or time.monotonic() < until:
                group.advance()
                if group.is_outdated:
                    epoch.ask_for_end()
                elif moves and group.is_level:
                    epoch.ask_for_end(of_all=True)
            positions = group.cut()
            released = meta
        return positions

    def _serve(self, opening: Opening, meta: Meta, pieces: Pieces, epoch: int) -> Serving:
        copy = self._copy(opening.group)
        rebuilds = copy.rebuilds
        state = copy.take(meta, pieces)
        with ExitStack() as undo:
            undo.callback(copy.release, None)
            driver = undo.enter_context(DriverWatch(self._address))
            opened = _opened(opening, state, meta, pieces, copy.rebuilds - rebuilds)
            freeze()
            undo.pop_all()
        return Serving(opening.group, opened, driver, epoch, self._settings.epoch_bytes)

    def _copy(self, group: int) -> WorkingCopy:
        settings = self._settings
        return _copy(self._directory(group), settings.allowed_lateness_ms, settings.merchant_facts)

    def _opening(self, group: int, *, takes_over: bool) -> Opening:
        settings = self._settings
        names = names_of(computed(merchants=settings.merchant_facts))
        loaders = partial(self._load, load_patiently, names), partial(self._load, _load_once, names)
        rules = Rules(
            settings.topics, self._key_groups, limits_of(settings), *loaders, merchants_of(settings),
            retired=settings.retired_transactions, losses=self._losses,
            rollout_topics=self._rollout_topics,
        )  # fmt: skip
        return Opening(
            settings, rules, group, _query_id(), self._instance, takes_over=takes_over, until=self._until
        )

    def _directory(self, group: int) -> Path:
        settings = self._settings
        # with its query: a predecessor of the same job id may run on this machine
        name = f"{_query_id()}-{group}"
        return settings.work_dir / "state" / settings.job_id / layout_digest() / name

    def _load(self, load: Callable[..., Scorer], names: tuple[str, ...], ref: ModelRef) -> Scorer:
        models = self._settings.work_dir / "models"
        scorer = load(ref, self._settings.mlflow_tracking_uri, models, names)
        _models.add(models / ref.digest)
        return scorer

    def close(self) -> None:
        """Release nothing: the loop goes on, and waits for the next epoch's task."""

"""The keyed stage on Spark: `transformWithState` over key groups, one MapState of pieces each."""

from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructType

from feature_store.arena import layout_digest
from feature_store.journal import load_meta
from models import registry
from models.registry import ModelRef
from models.scoring import Scorer
from streaming_job.contracts.topics import Topics
from streaming_job.runtime.failpoints import Step, reach
from streaming_job.group.loop import process
from streaming_job.packets import Packet, grouping_values
from streaming_job.runtime.workers.warm_up import freeze_after_warm_up
from streaming_job.group.working_copy import WorkingCopy

OUTCOME_SCHEMA = "key_group int, outcome binary"
"""Rows: outcomes in pieces, those of a key group in their order."""
# types: words would be sent to the JVM to be parsed, in each task
_NAME = StructType().add("name", StringType())
_BLOB = StructType().add("blob", BinaryType())


@cache  # as many as there are key groups
def _copy(directory: Path, lateness_ms: int) -> WorkingCopy:
    return WorkingCopy(directory, lateness_ms)


@lru_cache(maxsize=8)
def _model(ref: ModelRef, tracking_uri: str, cache_dir: Path) -> Scorer:
    return registry.load(ref, tracking_uri, cache_dir)


class Pieces:
    """A Spark MapState as a `PieceStore`."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: one variable, because each costs milliseconds a batch."""
        self._state: Any = handle.getMapState("pieces", _NAME, _BLOB)

    def get(self, name: str) -> bytes | None:
        """The piece of that name, if there is one."""
        found = self._state.getValue((name,))
        return bytes(found[0]) if found is not None else None

    def put(self, name: str, blob: bytes) -> None:
        """Add it, or put it in the place of the one that had the name."""
        self._state.updateValue((name,), (blob,))

    def remove(self, name: str) -> None:
        """Remove it."""
        self._state.removeKey((name,))


class KeyedStage(StatefulProcessor):
    """Runs `group_stage.process` with the state of the key group that Spark hands over."""

    def __init__(
        self, topics: Topics, groups: int, lateness_ms: int, tracking_uri: str, work_dir: Path, run: str
    ) -> None:
        """Everything that a worker needs; picklable.

        Args:
            topics: topic names.
            groups: number of key groups.
            lateness_ms: allowed lateness.
            tracking_uri: of MLflow.
            work_dir: local directory for working copies and models.
            run: names the checkpoint, so that copies of another one are not even looked at.
        """
        self._topics = topics
        self._groups = {value: group for group, value in enumerate(grouping_values(groups))}
        self._lateness_ms = lateness_ms
        self._tracking_uri = tracking_uri
        self._models_dir = work_dir / "models"
        self._copies_dir = work_dir / "state" / run / layout_digest()

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._pieces = Pieces(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """One batch of one key group: packets in, an outcome in pieces out."""
        group = self._groups[key[0]]
        packets = [Packet.unpack(bytes(row.packet)) for row in rows]
        copy = _copy(self._copies_dir / str(group), self._lateness_ms)
        meta = load_meta(self._pieces)
        rebuilds = copy.rebuilds
        with copy.use(meta, self._pieces) as state:
            outcome = process(group, packets, state, meta, self._pieces, self._topics, self._load_model)
            reach(Step.APPLIED)
        outcome.counts["rebuilds"] = copy.rebuilds - rebuilds
        freeze_after_warm_up()
        for piece in outcome.pack():
            yield Row(key_group=group, outcome=piece)

    def _load_model(self, ref: ModelRef) -> Scorer:
        return _model(ref, self._tracking_uri, self._models_dir)

    def close(self) -> None:
        """Nothing to release: copies and models live as long as the worker."""

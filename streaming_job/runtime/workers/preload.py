"""The preloading of all modules and kernels of Spark's Python processes, before they are forked.

Otherwise each process would import for a second or two and load compiled kernels for another, at the start of
a job and after each worker's death. Forked processes also share the memory.
"""

import gc
from functools import cache

import numpy as np
import orjson
import pandas  # noqa: F401  the serializers' import
import pyarrow as pa
import pyspark.daemon
import pyspark.sql.streaming.stateful_processor_util
import pyspark.sql.streaming.transform_with_state_driver_worker
import pyspark.worker  # noqa: F401  what a task runs in
from numpy.typing import NDArray

from feature_store.catalogue import IDENTITIES, NAMES
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, rebuild
from models import tracking
from models.feature_bins import bins_of
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import installation
from models.scoring import Scorer
from streaming_job.contracts.topics import Topics
from streaming_job.decode.transactions import TimeLimits
from streaming_job.group import processor  # noqa: F401  what the tasks call
from streaming_job.group.core import GroupCore
from streaming_job.group.rules import Rules
from streaming_job.log import message_batch
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.log.records import Records


@cache  # processes forked from a preloaded one do not load again
def preload() -> None:
    """Load kernels and libraries, and exclude them from later garbage collections."""
    load_kernels()
    tracking.load()
    # Spark's workers run a full collection after every task, which would walk and copy shared objects
    gc.collect()
    gc.freeze()


class _ZeroClassifier:
    """A classifier whose scores are all 0."""

    def score(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Classifier`."""
        return np.zeros(len(x))

    def explain(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Classifier`."""
        return np.zeros(x.shape)


def load_kernels() -> None:
    """Load the kernels by processing two transactions: decoding, features, score and state.

    Two, because numba compiles the columns of a single record as another type.
    """
    message_batch.load_kernels()
    now = 1_700_000_000_000
    record = {
        "card_id": "c", "merchant_id": "m", "amount": 1.5, "currency": "EUR",
        "country": "FR", "channel": "pos", "mcc": "5411", "event_time": now,
    }  # fmt: skip
    topics, key_groups = Topics(), KeyGroups(Partitioner.MURMUR2, 1, 1)
    zero = np.zeros(2, dtype=np.int64)

    def records(topic: str, keys: list[bytes], values: list[bytes]) -> Records:
        return Records(
            topic, zero.astype(np.int32), np.arange(2), zero + now, pa.array(keys), pa.array(values)
        )

    for partitioner in Partitioner:
        KeyGroups(partitioner, 1, 1).partitions_of(pa.array([b"c", b"d"]))
    state, store, meta = GroupState(MemoryArena()), MemoryPieces(), Meta()
    ref = ModelRef("preload", "1", "models:/preload/1", "0" * 64, IDENTITIES)
    rollout = [event.to_json() for event in installation(ref, Policy(0.5, 1), "preload", "preload", now)]
    bins = bins_of(np.zeros((2, len(NAMES))))
    scorer = Scorer(ref.name, ref.version, ref.digest, NAMES, _ZeroClassifier(), bins=bins)
    rules = Rules(topics, key_groups, TimeLimits(1, 1), lambda _: scorer)
    core = GroupCore(0, rules, state, meta, store, {})
    core.fold(records(topics.profiles, [b'{"card_id":"c"}'] * 2, [b"{}"] * 2))
    core.fold(records(topics.model_rollouts, [b"r"] * 2, rollout))
    core.decide(
        records(
            topics.transactions,
            [b"c"] * 2,
            [orjson.dumps({**record, "transaction_id": name}) for name in "tu"],
        )
    )
    core.seal(store, {})
    rebuild(store, meta, GroupState(MemoryArena()))

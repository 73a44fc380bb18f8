"""Everything that Spark's Python processes use, loaded once in the process that they are forked from.

Each of them would import for a second or two and load compiled kernels for another, at the start of a job and
after each worker's death. What is loaded here they share, in memory too.
"""

import gc
from functools import cache

import numpy as np
import orjson
import pandas  # noqa: F401  the serializers' import
import pyarrow as pa
import pyspark.daemon
import pyspark.sql.streaming.python_streaming_source_runner
import pyspark.sql.streaming.stateful_processor_util
import pyspark.sql.streaming.transform_with_state_driver_worker
import pyspark.sql.worker.create_data_source
import pyspark.sql.worker.lookup_data_sources
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401  what a task runs in

from feature_store.arena import MemoryArena
from feature_store.deltas import Delta
from feature_store.group_state import GroupState
from feature_store.hashing import hash_string
from feature_store.journal import MemoryPieces, Meta, commit, rebuild
from feature_store.layout import PROFILE
from models import tracking
from streaming_job import keyed_stage  # noqa: F401  what the tasks call
from streaming_job.decode import transactions
from streaming_job.decode.transactions import TimeLimits
from streaming_job.source import card_log, librdkafka, ranges, stage  # noqa: F401  what the tasks call


@cache  # a process forked from one that did it has it
def rehearse() -> None:
    """Load kernels and libraries, and let later garbage collections and forks leave them alone."""
    load_kernels()
    tracking.load()
    # Spark's workers run a full collection after every task: what is shared is not to be walked, nor copied
    gc.collect()
    gc.freeze()


def load_kernels() -> None:
    """Take two transactions through decoding, features and state, so that the kernels are loaded.

    Two, because numba takes the columns of a single record for another type.
    """
    now = 1_700_000_000_000
    record = {
        "card_id": "c", "merchant_id": "m", "amount": 1.5, "currency": "EUR",
        "country": "FR", "channel": "pos", "mcc": "5411", "event_time": now,
    }  # fmt: skip
    librdkafka.load_kernels()
    values = pa.array([orjson.dumps({**record, "transaction_id": name}) for name in "tu"])
    zero = np.zeros(len(values), dtype=np.int64)
    batch = transactions.decode(values, 0, zero, zero + now, TimeLimits(1, 1)).records
    hash_string("c")
    state = GroupState(MemoryArena())
    changes = np.zeros(0, dtype=PROFILE)
    change_cards, cards = state.card_numbers(changes), state.card_numbers(batch)
    state.change_profiles(changes, change_cards)
    applied = state.apply(batch, cards)
    alerted = np.ones(batch.size, dtype=np.bool_)
    state.count_alerts(cards, batch["arrival"], alerted, applied.restarted)
    store, meta = MemoryPieces(), Meta()
    commit(store, meta, state, Delta(changes, change_cards, batch, cards, alerted))
    rebuild(store, meta, GroupState(MemoryArena()))

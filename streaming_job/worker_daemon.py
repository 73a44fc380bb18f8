"""The process that Spark forks the job's Python workers from, with all that they need loaded before.

Forked from Spark's own daemon, each worker would import for a second and load compiled kernels for another,
at the start of a job and after each worker's death. What is loaded here they share, in memory too.
"""

import gc
from contextlib import redirect_stdout
from sys import stderr

import numpy as np
import orjson
import pandas  # noqa: F401  the serializers' import
import pyarrow as pa
import pyspark.sql.streaming.stateful_processor_util
import pyspark.worker  # noqa: F401  what a task runs in
from pyspark import daemon

from feature_store.arena import MemoryArena
from feature_store.deltas import Delta
from feature_store.group_state import GroupState
from feature_store.hashing import hash_string
from feature_store.journal import MemoryPieces, Meta, commit, rebuild
from feature_store.layout import PROFILE
from streaming_job import keyed_stage  # noqa: F401  what the tasks call
from streaming_job.decode import transactions
from streaming_job.decode.transactions import TimeLimits
from streaming_job.source import librdkafka, ranges, stage  # noqa: F401  what the tasks call


def rehearse() -> None:
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


def main() -> None:
    """Rehearse, then serve as Spark's daemon."""
    with redirect_stdout(stderr):  # Spark reads the daemon's address from stdout
        rehearse()
    # Spark's workers run a full collection after every task: what is shared is not to be walked, nor copied
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()

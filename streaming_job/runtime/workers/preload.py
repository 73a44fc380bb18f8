"""The preloading of all modules and kernels of Spark's Python processes, before they are forked.

Otherwise each process would take one to three seconds to import modules and load compiled kernels, at the
start of a job and after each worker's death. Forked processes also share the memory of what is preloaded.
"""

import gc
from functools import cache, partial

import numpy as np
import orjson
import pandas  # noqa: F401  for serializers
import pyarrow as pa
import pyspark.daemon
import pyspark.sql.streaming.stateful_processor_util
import pyspark.sql.streaming.transform_with_state_driver_worker
import pyspark.worker  # noqa: F401  what a task runs in
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS, IDENTITIES, NAMES
from feature_store.merchants.catalogue import ALL_NAMES
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
from streaming_job.facts.table import MerchantRules
from streaming_job.group import processor  # noqa: F401  what the tasks call
from streaming_job.group.core import GroupCore
from streaming_job.group.rules import Rules
from streaming_job.group.silence import Silence
from streaming_job.log import message_batch
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.log.records import Records


@cache  # processes forked from a preloaded one do not load again
def preload() -> None:
    """Load kernels and libraries, and exclude them from later garbage collections."""
    load_kernels()
    tracking.load()
    # Spark's workers run a full collection after every task, which would touch and so copy shared memory
    gc.collect()
    gc.freeze()


class _ZeroClassifier:
    """A `models.scoring.Classifier` whose scores are all 0."""

    def score(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Classifier`."""
        return np.zeros(len(x))

    def explain(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Classifier`."""
        return np.zeros(x.shape)


NOW = 1_700_000_000_000
"""Arrival of the records unless another is given, ms."""


def load_kernels() -> None:
    """Load the kernels by processing batches of two transactions: decoding, features, score and state.

    A batch has two, because numba types the columns of arrays with two or more records alike, but those of an
    array with a single record differently.
    """
    message_batch.load_kernels()
    for partitioner in Partitioner:
        KeyGroups(partitioner, 1, 1).partitions_of(pa.array([b"c", b"d"]))
    bins = bins_of(np.zeros((2, len(NAMES))))
    scorer = Scorer("preload", "1", "0" * 64, NAMES, _ZeroClassifier(), bins=bins)
    key_groups = KeyGroups(Partitioner.MURMUR2, 1, 1)
    for merchants in (None, MerchantRules("preload", 0)):
        columns = ALL_NAMES if merchants else NAMES
        load_model = partial(_load, scorer.on(columns))
        rules = Rules(Topics(), key_groups, TimeLimits(1, 1), load_model, merchants=merchants)
        _run_a_group(rules)


def _load(scorer: Scorer, _: ModelRef) -> Scorer:
    return scorer


def _run_a_group(rules: Rules) -> None:
    """Decide transactions of a key group, fold its merchant facts (if any), persist and rebuild its state."""
    topics, with_facts = rules.topics, rules.merchants is not None
    ref = ModelRef("preload", "1", "models:/preload/1", "0" * 64, IDENTITIES)
    rollout = [event.to_json() for event in installation(ref, Policy(0.5, 1), "preload", "preload", NOW)]
    transaction = {
        "card_id": "c", "merchant_id": "m", "amount": 1.5, "currency": "EUR",
        "country": "FR", "channel": "pos", "mcc": "5411", "event_time": NOW,
    }  # fmt: skip
    payments = [orjson.dumps({**transaction, "transaction_id": name}) for name in "tu"]
    state, store, meta = GroupState(MemoryArena(), keeps_ids=with_facts), MemoryPieces(), Meta()
    core = GroupCore(0, rules, state, meta, store, Silence({}))
    profile = {
        "card_id": "c", "status": "active", "home_country": "FR", "currency": "EUR", "credit_limit": 1.0,
        "risk_tier": 0, "opened_on": 0,
    }  # fmt: skip
    change = orjson.dumps({"op": "u", "after": profile})
    core.fold(_records(topics.profiles, [b'{"card_id":"c"}'] * 2, [change] * 2))
    core.fold(_records(topics.model_rollouts, [b"r"] * 2, rollout))
    core.decide(_records(topics.transactions, [b"c"] * 2, payments))
    if with_facts:
        label = {
            "transaction_id": "t", "card_id": "c", "merchant_id": "m", "event_time": NOW,
            "reported_at": NOW, "label": "fraud",
        }  # fmt: skip
        core.fold(_records(topics.chargebacks, [b"c"] * 2, [orjson.dumps(label)] * 2))
        core.settle(NOW + DAY_MS, 0)
        facts = [fact.value for fact in core.take_outcome().records["merchant_facts"]]
        core.fold(_records(topics.merchant_facts, [b"0"] * len(facts), facts))
        core.decide(_records(topics.transactions, [b"c"] * 2, payments, NOW + DAY_MS))
    core.seal(store, {})
    rebuild(store, meta, GroupState(MemoryArena(), keeps_ids=with_facts))


def _records(topic: str, keys: list[bytes], values: list[bytes], arrival: int = NOW) -> Records:
    zero = np.zeros(len(keys), dtype=np.int64)
    return Records(
        topic, zero.astype(np.int32), zero + np.arange(zero.size), zero + arrival, pa.array(keys),
        pa.array(values),
    )  # fmt: skip


if __name__ == "__main__":
    load_kernels()

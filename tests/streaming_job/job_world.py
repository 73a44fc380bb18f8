"""A log of transactions, profiles and rollouts, and the job's stages over it without Spark or Kafka."""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from feature_store import training_set
from feature_store.arena import MemoryArena
from feature_store.catalogue import NAMES, feature_hash
from feature_store.group_state import GroupState
from feature_store.journal import MemoryPieces, load_meta, rebuild
from loadtests.oracle import Kind, Oracle, ProfileLog, Record, RolloutLog
from loadtests.oracle import Outcome as Expected
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts import Rollout
from models.scoring import Scorer
from models.train import train
from models.trees import compile_trees
from streaming_job.contracts.topics import Topics
from streaming_job.decode.transactions import TimeLimits
from streaming_job.group.loop import process
from streaming_job.progress.outcome import Outcome
from streaming_job.packets import Packet
from streaming_job.log.records import Records
from streaming_job.source.stage import SourceStage

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
START = 1_780_000_200_000
TOPICS = Topics()
LIMITS = TimeLimits(7 * DAY, 5 * MINUTE)
THRESHOLD = 0.5


def model_ref(version: str = "1") -> ModelRef:
    """What a rollout names."""
    return ModelRef("card-fraud", version, f"models:/card-fraud/{version}", version * 64, feature_hash())


@cache
def scorer(version: str = "1") -> Scorer:
    """A small gradient-boosted model of real features; another version has learnt from other labels."""
    rng = np.random.default_rng(int(version))
    n = 2000
    times = START - DAY + np.sort(rng.integers(0, DAY, n))
    table = pa.table(
        {
            "transaction_id": [f"t{row}" for row in range(n)],
            "card_id": [f"c{card}" for card in rng.integers(0, 100, n)],
            "merchant_id": [f"m{merchant}" for merchant in rng.integers(0, 30, n)],
            "amount": rng.integers(1, 50_000, n) / 100,
            "currency": ["EUR"] * n,
            "country": [("FR", "DE")[bit] for bit in rng.integers(0, 2, n)],
            "event_time": times,
        }
    )
    x = training_set.build(table)
    y = (x[:, 0] > 300 + 50 * int(version)) ^ (rng.random(n) < 0.05)
    with threadpool_limits(1):
        trees = compile_trees(train(x, y, iterations=15))
    return Scorer("card-fraud", version, version * 64, NAMES, trees)


def load(ref: ModelRef) -> Scorer:
    """The model of a rollout."""
    return scorer(ref.version)


class World:
    """The log, and what the job makes of it."""

    def __init__(self, *, rollout: bool = True) -> None:
        self.transactions: list[Record] = []
        self.profiles: list[Record] = []
        self.rollouts: list[Record] = []
        if rollout:
            self.rollout("r1", -HOUR)

    def rollout(
        self,
        name: str,
        arrival: int,
        *,
        threshold: float = THRESHOLD,
        max_count_5m: int = 10,
        version: str = "1",
        model: ModelRef | None = None,
        missing_profile: str = "score",
    ) -> None:
        """Append a rollout; `arrival` in ms from START."""
        value = Rollout(
            name, model or model_ref(version), Policy(threshold, max_count_5m, missing_profile), "test", START
        ).to_json()
        self.raw_rollout(value, arrival)

    def raw_rollout(self, value: bytes | None, arrival: int = 0) -> None:
        """Append any record to the rollouts."""
        offset = len(self.rollouts)
        self.rollouts.append(Record(TOPICS.model_rollouts, 0, offset, START + arrival, b"r", value))

    def profile(
        self, op: str, arrival: int, card: str = "c", *, source: dict[str, Any] | None = None, **row: Any
    ) -> None:
        """Append a profile change (`op`, `source` as Debezium has them, or "tombstone")."""
        full = {
            "card_id": card, "status": "active", "home_country": "FR", "currency": "EUR",
            "credit_limit": 1000.0, "risk_tier": 0, "opened_on": 20_000, **row,
        }  # fmt: skip
        side = "before" if op == "d" else "after"
        value = None if op == "tombstone" else json.dumps({"op": op, side: full, "source": source}).encode()
        self.raw_profile(value, arrival, json.dumps({"card_id": card}).encode())

    def raw_profile(self, value: bytes | None, arrival: int = 0, key: bytes | None = b"{}") -> None:
        """Append any record to the profiles."""
        offset = len(self.profiles)
        self.profiles.append(Record(TOPICS.profiles, 0, offset, START + arrival, key, value))

    def tx(self, time: int, amount: float = 10.0, *, arrival: int | None = None, **fields: Any) -> None:
        """Append a transaction; times in ms from START; arrives when it happens unless told otherwise."""
        value = {
            "transaction_id": f"t{len(self.transactions)}", "card_id": "c", "merchant_id": "m",
            "amount": amount, "currency": "EUR", "country": "FR", "event_time": START + time, **fields,
        }  # fmt: skip
        self.raw_tx(json.dumps(value).encode(), time if arrival is None else arrival)

    def raw_tx(self, value: bytes | None, arrival: int = 0, key: bytes | None = b"c") -> None:
        """Append any record to the transactions."""
        offset = len(self.transactions)
        self.transactions.append(Record(TOPICS.transactions, 0, offset, START + arrival, key, value))

    def run(
        self,
        cuts: Sequence[int] = (),
        *,
        groups: int = 1,
        load_model: Callable[[ModelRef], Scorer] = load,
        rebuild_each_batch: bool = False,
        pieces: int = 1,
    ) -> list[Outcome]:
        """One outcome per batch; batches end before the transactions in `cuts`.

        A batch's transactions come in so many `pieces`, the last first.

        Each batch reads the tables up to its last transaction's arrival at least, as the job does.
        """
        stores = [MemoryPieces() for _ in range(groups)]
        states = [GroupState(MemoryArena()) for _ in range(groups)]
        stage = SourceStage(TOPICS, groups, LIMITS)
        borders = sorted({0, len(self.transactions), *cuts})
        in_order = [*_when_written(self.profiles), *_when_written(self.rollouts)]
        read, outcomes = START - 10**12, []
        for start, end in pairwise(borders):
            transactions = self.transactions[start:end]
            last = end == len(self.transactions)
            known = 10**15 if last else max(record.timestamp for record in transactions)
            if not outcomes and self.rollouts:  # the job does not start without one
                known = max(known, self.rollouts[0].timestamp)
            known = max(known, read)
            tables = [record for when, record in in_order if read < when <= known]
            read = known
            packets: dict[int, list[Packet]] = {group: [] for group in range(groups)}
            size = -(-len(transactions) // pieces)
            parts = [transactions[at : at + size] for at in range(0, len(transactions), size)]
            for part in (*parts[::-1], tables):
                for records in _as_read(part):
                    for group, packet in stage.decode(records).items():
                        packets[group].append(Packet.unpack(packet.pack()))
            outcome = Outcome()
            for group in range(groups):
                meta = load_meta(stores[group])
                if rebuild_each_batch:
                    states[group] = GroupState(MemoryArena())
                    rebuild(stores[group], meta, states[group])
                part_outcome = process(
                    group, packets[group], states[group], meta, stores[group], TOPICS, load_model
                )
                outcome.add(Outcome.unpack(part_outcome.pack()))
            outcomes.append(outcome)
        return outcomes

    def alerts(self, **options: Any) -> list[dict[str, Any]]:
        """The alerts of a run, in log order."""
        return [json.loads(alert.value) for outcome in self.run(**options) for alert in outcome.alerts]

    def expected(self, load_model: Callable[[ModelRef], Scorer] = load) -> list[Expected]:
        """What the oracle says had to become of every record."""
        profiles, rollouts = ProfileLog(), RolloutLog()
        out = profiles.read(self.profiles) + rollouts.read(self.rollouts)
        oracle = Oracle(
            profiles, rollouts, lambda rollout: load_model(rollout.model),
            allowed_lateness_ms=LIMITS.lateness_ms, allowed_skew_ms=LIMITS.skew_ms,
        )  # fmt: skip
        return out + list(oracle.judge(self.transactions))


def expected_alerts(outcomes: list[Expected]) -> list[dict[str, Any]]:
    """The alerts among the oracle's outcomes."""
    return [outcome.alert for outcome in outcomes if outcome.kind == Kind.ALERT and outcome.alert]


def dead_letters(outcomes: list[Outcome]) -> list[tuple[str, int, str]]:
    """(topic, offset, reason) of all dead letters, sorted."""
    return sorted(
        (letter.topic, letter.offset, letter.reason.value)
        for outcome in outcomes
        for letter in outcome.dead_letters
    )


def _when_written(records: Sequence[Record]) -> list[tuple[int, Record]]:
    """When each record was written at the earliest, whatever its timestamp says: after the one before."""
    times = accumulate((record.timestamp for record in records), max)
    return list(zip(times, records, strict=True))


def _as_read(records: Sequence[Record]) -> Iterator[Records]:
    """Records as they are read, topic by topic."""
    for (topic, partition), group in groupby(
        sorted(records, key=lambda r: (r.topic, r.partition)), key=lambda r: (r.topic, r.partition)
    ):
        found = list(group)
        yield Records(
            topic,
            partition,
            np.array([r.offset for r in found], dtype=np.int64),
            np.array([r.timestamp for r in found], dtype=np.int64),
            pa.array([r.key for r in found], pa.binary()),
            pa.array([r.value for r in found], pa.binary()),
        )


def from_base64(text: str | None) -> bytes | None:
    """Inverse of a dead letter's encoding."""
    return None if text is None else base64.b64decode(text)

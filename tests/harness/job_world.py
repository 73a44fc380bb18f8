"""A log of transactions, profiles, rollouts and labels, and key groups over it without Spark or Kafka."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from feature_store.catalogue import IDENTITIES, NAMES, names_of
from feature_store.merchants.catalogue import ALL_NAMES
from feature_store.training import training_set
from harness.group_batches import Group, merged
from harness.log_world import DAY, HOUR, MINUTE, START, TOPICS, LogWorld
from harness.rollout_records import event as rollout_event
from harness.rollout_records import installed
from loadtests.oracle import (
    AcceptanceRules,
    ExpectedOutcome,
    Kind,
    Oracle,
    ProfileLog,
    Record,
    RolloutLog,
    SchemaLog,
)
from models.algorithms import QUICK
from models.errors import ModelError
from models.feature_bins import bins_of
from models.percentiles import quantiles
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts import machine
from models.rollouts.events import Event, Type
from models.rollouts.machine import ConflictError
from models.rollouts.reading import read
from models.rollouts.state import Line
from models.scoring import Scorer
from models.trees import compile_trees
from streaming_job.contracts import ContractError
from streaming_job.decode.snapshots import ends_snapshot
from streaming_job.decode.transactions import TimeLimits
from streaming_job.facts.table import MerchantRules
from streaming_job.group.rules import Rules
from streaming_job.log.losses import NOTHING_LOST
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.progress.outcome import Outcome

LIMITS = TimeLimits(7 * DAY, 5 * MINUTE)
THRESHOLD = 0.5
PARTITIONER = Partitioner.MURMUR2


def model_ref(version: str = "1") -> ModelRef:
    """Reference of a model, as a rollout names it."""
    return ModelRef("card-fraud", version, f"models:/card-fraud/{version}", (version * 64)[:64], IDENTITIES)


def subset_ref() -> ModelRef:
    """A model of a few features, in another order than the catalogue's."""
    return replace(model_ref("3"), features=("ratio_robust:1", "count_1h:1", "amount:1"))


def newer_ref() -> ModelRef:
    """A model of a feature version that this release does not compute."""
    return replace(model_ref("4"), features=("amount:1", "count_1h:2"))


@cache
def scorer(version: str = "1") -> Scorer:
    """A small gradient-boosted model of real features; each version is trained on other labels."""
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
        trees = compile_trees(replace(QUICK, iterations=15).fit(x, y))
    return Scorer("card-fraud", version, version * 64, NAMES, trees, quantiles(trees.score(x)), bins_of(x))


@cache
def small_scorer() -> Scorer:
    """Scorer of `subset_ref`."""
    ref = subset_ref()
    rng = np.random.default_rng(3)
    x = rng.exponential(20.0, (2000, len(ref.features)))
    with threadpool_limits(1):
        trees = compile_trees(replace(QUICK, iterations=5).fit(x, x[:, 2] > 40))
    return Scorer(ref.name, ref.version, ref.digest, names_of(ref.features), trees)


def load(ref: ModelRef) -> Scorer:
    """The model of a rollout.

    Raises:
        ModelError: there is no model of its features.
    """
    if ref == subset_ref():
        return small_scorer()
    if ref.features != IDENTITIES:
        raise ModelError("no such model")
    return scorer(ref.version)


class World(LogWorld):
    """A log with labels, and the job's outcomes."""

    def __init__(self, *, rollout: bool = True, partitions: int = 1) -> None:
        """Start a log."""
        super().__init__()
        self.partitions = partitions
        self.losses = NOTHING_LOST
        """See `Rules`."""
        self.labels: list[Record] = []
        self.chargebacks: list[Record] = []
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
        """Append a proposal and its promotion; `arrival` in ms from START."""
        policy = Policy(threshold, max_count_5m, missing_profile)
        for event in installed(name, model or model_ref(version), policy):
            self.event(event, arrival)

    def withdraw(self, name: str, arrival: int, *, from_the_beginning: bool = False) -> None:
        """Append the withdrawal of a rollout; `arrival` in ms from START."""
        trial = self.line().trials.get(name)
        seq = 1 if trial is None else trial.seq + 1
        event = rollout_event(Type.WITHDRAWN, name, seq, from_the_beginning=from_the_beginning)
        self.event(event, arrival)

    def event(self, event: Event, arrival: int) -> None:
        """Append a rollout event; `arrival` in ms from START."""
        self.raw_rollout(event.to_json(), arrival)

    def line(self) -> Line:
        """The rollouts after the log so far, if the job can use every model."""
        line = Line()
        for record in self.rollouts:
            try:
                line = machine.apply(line, read(record.value or b""))
            except (ContractError, ConflictError):  # broken, or refused
                continue
        return line

    def label(self, transaction: int, arrival: int, kind: str = "chargeback", **fields: Any) -> None:
        """Append a label of the n-th transaction; `arrival` in ms from START.

        Labels of the kinds `chargeback` and `genuine` are records of chargeback.v1 if `transaction` is even.
        """
        tx = json.loads(self.transactions[transaction].value or b"")
        card, at = tx["card_id"], START + arrival
        value = {"transaction_id": tx["transaction_id"], "card_id": card}
        if kind in ("chargeback", "genuine") and transaction % 2 == 0:
            value |= {name: tx[name] for name in ("merchant_id", "event_time")}
            value |= {"reported_at": at, "label": "genuine" if kind == "genuine" else "fraud"}
            self.raw_label(json.dumps({**value, **fields}).encode(), arrival, card.encode(), old=True)
            return
        if kind in ("genuine", "fraud"):
            value |= {"verdict": kind, **({"reason": "travel"} if kind == "genuine" else {})}
            kind = "verdict"
        value |= {"schema_version": 1, "kind": kind, "source": "s", "occurred_at": at, "maturity": "final"}
        self.raw_label(json.dumps({**value, **fields}).encode(), arrival, card.encode())

    def raw_label(self, value: bytes | None, arrival: int, key: bytes | None, *, old: bool = False) -> None:
        """Append a record of any content to the labels or the chargebacks."""
        log, topic = (self.chargebacks, TOPICS.chargebacks) if old else (self.labels, TOPICS.labels)
        log.append(Record(topic, 0, len(log), START + arrival, key, value))

    def partition_of(self, card: str) -> int:
        """Partition of a card's transactions."""
        return self.key_groups().partition_of(card)

    def key_groups(self, groups: int = 1) -> KeyGroups:
        """Partition and group of each card."""
        assert groups <= self.partitions
        return KeyGroups(PARTITIONER, self.partitions, groups)

    def rules(
        self,
        groups: int = 1,
        load_model: Callable[[ModelRef], Scorer] = load,
        merchants: MerchantRules | None = None,
    ) -> Rules:
        """Rules of the job."""
        names = ALL_NAMES if merchants else NAMES
        groups_of_cards = self.key_groups(groups)
        return Rules(
            TOPICS, groups_of_cards, LIMITS, lambda ref: load_model(ref).on(names), merchants=merchants,
            losses=self.losses,
        )  # fmt: skip

    def compact(self, before: int) -> None:
        """Remove the profiles that newer ones have replaced which arrived before `before`, ms from START.

        The row that ends the first snapshot stays: without it, rows of a later one would count as rows of the
        first, for which a job waits (docs/decisions/221).
        """
        end = next((row.offset for row in self.profiles if ends_snapshot(row.value)), -1)
        self.losses = replace(self.losses, profiles_before=START + before)
        newest = {record.key: record.offset for record in self.profiles if record.timestamp < START + before}
        self.profiles = [
            row for row in self.profiles if row.offset >= newest.get(row.key, 0) or row.offset == end
        ]

    def in_order(self) -> list[Record]:
        """All records in the order of writing; at equal times profiles and rollouts come first, labels last.

        So a label comes after its transaction, even within the same millisecond.
        """
        logs = (
            self.profiles, self.rollouts, self.schemas, self.transactions, self.labels, self.chargebacks,
        )  # fmt: skip
        return [record for _, record in sorted((r for log in logs for r in _when_written(log)), key=_time)]

    def run(
        self,
        cuts: Sequence[int] = (),
        *,
        groups: int = 1,
        load_model: Callable[[ModelRef], Scorer] = load,
        rebuild_each_batch: bool = False,
    ) -> list[Outcome]:
        """Return one outcome per batch, of all groups; batches end before the transactions in `cuts`.

        Each batch first folds the tables at least up to its last transaction's arrival, as the job does.
        """
        rules = self.rules(groups, load_model)
        serving = [Group(number, rules) for number in range(groups)]
        borders = sorted({0, len(self.transactions), *cuts})
        tables = [
            *_when_written(self.profiles), *_when_written(self.rollouts), *_when_written(self.schemas),
        ]  # fmt: skip
        read, outcomes = START - 10**12, []
        for start, end in pairwise(borders):
            transactions = self.transactions[start:end]
            last = end == len(self.transactions)
            known = 10**15 if last else max(record.timestamp for record in transactions)
            if not outcomes and self.rollouts:  # the job does not start without a rollout
                known = max(known, self.rollouts[0].timestamp)
            # what was there when compaction ran is read before the first transaction
            known = max(known, read, self.losses.profiles_before or read)
            changes = [record for when, record in tables if read < when <= known]
            read = known
            for group in serving:
                group.take(changes, transactions)
                if rebuild_each_batch:
                    group.rebuild()
            outcomes.append(merged(group.core.take_outcome() for group in serving))
        return outcomes

    def alerts(self, **options: Any) -> list[dict[str, Any]]:
        """The alerts of a run, in the order of batches, partitions and offsets."""
        return [
            json.loads(alert.value)
            for outcome in self.run(**options)
            for alert in outcome.records["fraud_alerts"]
        ]

    def expected(self, load_model: Callable[[ModelRef], Scorer] = load) -> list[ExpectedOutcome]:
        """Outcomes by the oracle: of each transaction, and the dead letters of the tables."""
        profiles, rollouts = ProfileLog(), RolloutLog(lambda rollout: load_model(rollout.model))
        schemas = SchemaLog()
        out = profiles.read(self.profiles) + rollouts.read(self.rollouts) + schemas.read(self.schemas)
        rules = AcceptanceRules(
            LIMITS.lateness_ms, LIMITS.skew_ms, self.partitions, PARTITIONER.value, row=schemas.row
        )
        oracle = Oracle(profiles, rollouts, lambda rollout: load_model(rollout.model), rules)
        oracle.lost(self.losses.profiles_before, self.losses.windows_before)
        return out + list(oracle.judge(self.transactions))


def expected_alerts(outcomes: list[ExpectedOutcome]) -> list[dict[str, Any]]:
    """The alerts among the oracle's outcomes, in the order of partitions and offsets."""
    alerts = [outcome.alert for outcome in outcomes if outcome.kind == Kind.ALERT and outcome.alert]
    return sorted(alerts, key=place)


def place(alert: dict[str, Any]) -> tuple[int, int]:
    """Partition and offset of an alert's transaction."""
    return alert["source"]["partition"], alert["source"]["offset"]


def dead_letters(outcomes: list[Outcome]) -> list[tuple[str, int, int, str]]:
    """(topic, partition, offset, reason) of all dead letters, sorted."""
    return sorted(
        (letter.topic, letter.partition, letter.offset, letter.reason.value)
        for outcome in outcomes
        for letter in outcome.dead_letters
    )


def _when_written(records: Sequence[Record]) -> list[tuple[int, Record]]:
    """Pair each record with the earliest time at which it can have been written.

    It is the highest timestamp among the record and those before it.
    """
    times = accumulate((record.timestamp for record in records), max)
    return list(zip(times, records, strict=True))


def _time(written: tuple[int, Record]) -> int:
    return written[0]

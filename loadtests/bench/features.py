"""Benchmarks of the feature engine: kernel, persistence, decoding, counts for drift, training sets."""

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from feature_store.layout import CARD, EVENT
from feature_store.state.arena import FileArena, MemoryArena
from feature_store.state.deltas import Delta
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, append, rebuild, seal
from feature_store.state.piece_records import CARDS_PER_PIECE
from feature_store.state.pieces import write_piece
from feature_store.training.training_run import Task, compute
from feature_store.training.transaction_files import TransactionFiles
from loadtests.bench.feature_load import FeatureLoad
from loadtests.bench.log_records import ONE_PARTITION, log_records
from loadtests.bench.measure import Figure, per_item
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from models.feature_bins import SAMPLED, bins_of
from streaming_job.decide.decider import BLOCK
from streaming_job.decode import transactions
from streaming_job.decode.transactions import TimeLimits

BATCH = 20_000
SMALL_BATCH = 2_000
"""Transactions of one key group between two deltas."""
KEPT_DAYS = 40
"""After this many days the state of a card with two transactions a day no longer grows."""
FEW_DAYS = 3
"""Days of history for MANY or more cards, whose forty days would exceed a machine's memory; also used by
`counting`."""
MANY = 1_000_000
BUSY_CARDS, BUSY_PER_DAY = 20_000, 4_000.0
"""Cards beside one busy card, and transactions per day of each: 926 events per second in all. The busy card,
if there is one, takes over nine tenths of these, 50,000 per minute."""
RESTART_CARDS = 500_000
"""Cards of one key group of a job with 1,000,000 cards on two cores."""


def kernel(cards: int, rounds: int) -> Figure:
    """Measure the time per event to look up its card, compute all features and insert the event."""
    load, state = FeatureLoad(cards), GroupState(MemoryArena())
    days = KEPT_DAYS if cards < MANY else FEW_DAYS
    load.warm(state, days, batch=min(2 * cards, 100_000))
    per_card = state.event_count / cards
    detail = f"{BATCH:,} events a batch, {per_card:.0f} events a card kept"
    return _apply(f"kernel, {cards:,} cards", load, state, rounds, detail)


def hot(rounds: int) -> Figure:
    """Measure the same as `kernel` for a single hot card with 100,000 transactions per hour."""
    load, state = FeatureLoad(1, per_day=2_400_000), GroupState(MemoryArena())
    warm = load.next(100_000)
    state.apply(warm, state.card_numbers(warm))
    return _apply("kernel, one hot card", load, state, rounds, "100,000 transactions an hour")


class BusyCard(FeatureLoad):
    """A load in which one card makes a given share of the transactions."""

    def __init__(self, share: float) -> None:
        super().__init__(BUSY_CARDS, per_day=BUSY_PER_DAY)
        self._share = share

    def next(self, events: int) -> NDArray[np.void]:
        """Return the next transactions in order of arrival, shape (events,)."""
        records = super().next(events)
        busy = np.random.default_rng(events).random(events) < self._share
        records["lo"][busy], records["hi"][busy] = 1, 1
        return records


def one_busy_card(rounds: int) -> Iterator[Figure]:
    """Measure an event's cost with and without a card that makes 9 of 10 transactions (50,000 per minute)."""
    for share in (0.0, 0.9):
        load, state = BusyCard(share), GroupState(MemoryArena())
        for _ in range(20):
            warm = load.next(BATCH)
            state.apply(warm, state.card_numbers(warm))
        name = f"kernel, {share:.0%} of the transactions on one card"
        detail = f"{BATCH:,} events a batch, {BUSY_CARDS:,} other cards, 926 events/s"
        yield _apply(name, load, state, rounds, detail)


def _apply(name: str, load: FeatureLoad, state: GroupState, rounds: int, detail: str) -> Figure:
    def prepare() -> Callable[[], object]:
        records = load.next(BATCH)
        return lambda: state.apply(records, state.card_numbers(records))

    prepare()()  # compiles
    return per_item(name, "ns/event", rounds, BATCH, prepare, scale=1e9, detail=detail)


def persistence(cards: int, rounds: int) -> Iterator[Figure]:
    """Measure a state's size on disk and in mapped files, and the costs of writing and rebuilding it."""
    yield from _at_rest(cards, rounds, 1)
    yield from _at_rest(cards, rounds, 1000)
    yield from restart(RESTART_CARDS)


def _at_rest(cards: int, rounds: int, resolution_ms: int) -> Iterator[Figure]:
    """Measure bytes per card, deltas, snapshots and rebuilding, after 40 days of two transactions a day.

    With a resolution above 1 ms, only the bytes per card in the store are measured.
    """
    load, store, meta = FeatureLoad(cards, resolution_ms=resolution_ms), MemoryPieces(), Meta()
    with tempfile.TemporaryDirectory() as directory:
        state = GroupState(FileArena(Path(directory)))
        batch = SMALL_BATCH
        times = []
        for _ in range(int(2 * KEPT_DAYS * cards / batch)):
            delta = _batch(load, state, batch)
            start = time.thread_time()
            append(store, meta, state, delta)
            seal(store, meta)
            times.append(1000 * (time.thread_time() - start))
        stamps = "times in ms" if resolution_ms == 1 else "times in whole seconds"
        detail = f"{cards:,} cards, two transactions a day for {KEPT_DAYS} days"
        per_card = state.event_count / cards

        def size(first: str) -> float:
            return sum(len(blob) for name, blob in store.items() if name.startswith(first)) / cards

        deltas = f"{meta.sequence - meta.oldest + 1} deltas of {batch:,} events"
        yield _bytes(f"persisted, snapshots, {stamps}", size("s"), f"{per_card:.0f} events a card kept")
        yield _bytes(f"persisted, deltas, {stamps}", size("d"), deltas)
        yield _bytes(f"persisted, all, {stamps}", size(""), detail)
        if resolution_ms > 1:
            return
        records = CARD.itemsize + per_card * EVENT.itemsize
        yield _bytes("records alone", records, "a card and its events, uncompressed")
        yield _bytes("working copy", state.arena.nbytes / cards, "allocated size of the sparse mapped files")
        yield _persisting("delta and snapshots, write", times[len(times) // 2 :])
        yield per_item(
            "delta, encode", "us/event", rounds, batch, lambda: _batch(load, state, batch).encode,
            scale=1e6, detail=f"{batch:,} events",
        )  # fmt: skip
        pieces = -(-cards // CARDS_PER_PIECE)
        yield per_item(
            "snapshot, write", "us/card", rounds, cards,
            lambda: lambda: [write_piece(state, piece) for piece in range(pieces)], scale=1e6, detail=detail,
        )  # fmt: skip
        events = state.event_count
        yield per_item(
            "rebuild", "ns/event", max(rounds // 3, 3), events,
            lambda: lambda: rebuild(store, meta, GroupState(MemoryArena())), scale=1e9,
            detail=f"{events:,} events kept, {len(store):,} pieces",
        )  # fmt: skip


def _bytes(name: str, value: float, detail: str) -> Figure:
    return Figure(name, value, "bytes/card", detail, rounds=(value,))


def restart(cards: int) -> Iterator[Figure]:
    """Measure writing deltas and snapshots of a large key group, and rebuilding it in mapped files."""
    load, state, store, meta = FeatureLoad(cards), GroupState(MemoryArena()), MemoryPieces(), Meta()
    load.warm(state, KEPT_DAYS, batch=200_000)
    times = []
    # the first delta lists all cards of the warm-up, so it is large, and many parts of a snapshot are written
    # with it; go on until each of these parts is replaced: all sizes are then those after a long run
    while not meta.pieces or min(meta.pieces) < 2:
        delta = _batch(load, state, SMALL_BATCH)
        start = time.thread_time()
        append(store, meta, state, delta)
        seal(store, meta)
        times.append(1000 * (time.thread_time() - start))
    yield _persisting(f"delta and snapshots, write, {cards:,} cards", times[len(times) // 2 :])
    events = state.event_count
    del state

    def prepare() -> Callable[[], object]:
        shutil.rmtree(directory, ignore_errors=True)
        arena = FileArena(Path(directory))
        return lambda: rebuild(store, meta, GroupState(arena))

    size = sum(map(len, store.values())) / 1e6
    with tempfile.TemporaryDirectory() as directory:
        yield per_item(
            f"rebuild, {cards:,} cards", "s", 3, 1, prepare, scale=1.0,
            detail=f"one group, {events:,} events, {size:,.0f} MB in {len(store):,} pieces",
        )  # fmt: skip


def _persisting(name: str, times: list[float]) -> Figure:
    detail = f"{SMALL_BATCH:,} events a delta; mean, not median; maximum {max(times):.1f} ms"
    return Figure(name, statistics.mean(times), "ms/delta", detail, rounds=tuple(times))


def _batch(load: FeatureLoad, state: GroupState, events: int) -> Delta:
    records = load.next(events)
    cards = state.card_numbers(records)
    state.apply(records, cards)
    none = np.zeros(0, dtype=np.int32)
    return Delta(state.profiles[:0], none, records, cards, np.zeros(events, dtype=np.bool_))


def decoding(rounds: int) -> Figure:
    """Measure decoding and checking a record of the transactions topic."""
    world = World.create(seed=1, cards=100_000, merchants=10_000)
    stream = Stream(world, 5_000.0, 1_780_000_000_000, disturbances=Disturbances.none())
    records = log_records(stream.blocks(events=50_000))
    limits = TimeLimits(7 * 86_400_000, 300_000)

    def call() -> None:
        decoded = transactions.decode(records, limits, ONE_PARTITION)
        assert not decoded.rejections

    call()
    size = pc.mean(pc.binary_length(records.values)).as_py()
    detail = f"{len(records):,} records of {size:.0f} bytes; one thread"
    return per_item("decode", "us/record", rounds, len(records), lambda: call, scale=1e6, detail=detail)


def counting(rounds: int) -> Figure:
    """Measure counting the features of a block of transactions in the histogram bins set by training."""
    load, state = FeatureLoad(BUSY_CARDS), GroupState(MemoryArena())
    load.warm(state, FEW_DAYS, batch=BATCH)
    records = load.next(BATCH)
    features = state.apply(records, state.card_numbers(records)).features
    bins = bins_of(features)
    block, hashes = features[:BLOCK], records["transaction"][:BLOCK]
    counts = np.zeros_like(bins.trained)
    detail = f"{BLOCK:,} transactions of {features.shape[1]} features; one in {SAMPLED} transactions counted"
    return per_item(
        "feature counts", "ns/event", rounds, BLOCK,
        lambda: lambda: bins.add(block, hashes, counts), scale=1e9, detail=detail,
    )  # fmt: skip


def training_set(path: Path, rounds: int) -> Figure:
    """Measure computing and writing, in this process, the training set of a Parquet file of transactions."""
    task = Task(TransactionFiles(path))
    with tempfile.TemporaryDirectory() as directory:
        return per_item(
            "training set", "s", rounds, 1,
            lambda: lambda: compute(task, Path(directory) / "features.parquet"), scale=1.0,
            detail=f"{task.transactions.rows:,} rows",
        )  # fmt: skip

"""What the feature engine costs: kernel, state, persistence, decoding, training sets."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from feature_store.arena import MemoryArena
from feature_store.deltas import Delta
from feature_store.group_state import GroupState
from feature_store.journal import Meta, commit, rebuild
from feature_store.layout import CARD, EVENT
from feature_store.pieces import CARDS_PER_PIECE, write_piece
from feature_store.training_run import Task, compute
from feature_store.transaction_files import TransactionFiles
from loadtests.bench.feature_load import FeatureLoad
from loadtests.bench.measure import Figure, per_item
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from streaming_job.decode import transactions
from streaming_job.decode.transactions import TimeLimits

BATCH = 20_000
KEPT_DAYS = 40
"""From then on a card at two transactions a day neither gains nor loses."""
FEW_DAYS = 3
"""For so many cards that forty days of them are more than a machine's memory."""
MANY = 1_000_000


class Pieces(dict[str, bytes]):
    """A `PieceStore` in memory."""

    def put(self, name: str, blob: bytes) -> None:
        """See `PieceStore.put`."""
        self[name] = blob

    def remove(self, name: str) -> None:
        """See `PieceStore.remove`."""
        del self[name]


def kernel(cards: int, rounds: int) -> Figure:
    """Looking up the card, all features, and insertion of one event."""
    load, state = FeatureLoad(cards), GroupState(MemoryArena())
    days = KEPT_DAYS if cards < MANY else FEW_DAYS
    load.warm(state, days, batch=min(2 * cards, 100_000))
    kept = state.event_count / cards
    detail = f"{BATCH:,} events a batch, {kept:.0f} events a card kept"
    return _apply(f"kernel, {cards:,} cards", load, state, rounds, detail)


def hot(rounds: int) -> Figure:
    """The same for the only card of the group, at 100,000 transactions an hour."""
    load, state = FeatureLoad(1, per_day=2_400_000), GroupState(MemoryArena())
    warm = load.next(100_000)
    state.apply(warm, state.card_numbers(warm))
    return _apply("kernel, one hot card", load, state, rounds, "100,000 transactions an hour")


def _apply(name: str, load: FeatureLoad, state: GroupState, rounds: int, detail: str) -> Figure:
    def prepare() -> Callable[[], object]:
        records = load.next(BATCH)
        return lambda: state.apply(records, state.card_numbers(records))

    prepare()()  # compiles
    return per_item(name, "ns/event", rounds, BATCH, prepare, scale=1e9, detail=detail)


def persistence(cards: int, rounds: int) -> Iterator[Figure]:
    """Bytes a card, and speed of deltas, snapshots and rebuilding, after forty days at two a day."""
    load, store, meta = FeatureLoad(cards), Pieces(), Meta()
    state = GroupState(MemoryArena())
    batch = 2_000
    none = np.zeros(0, dtype=np.int32)
    for _ in range(int(2 * KEPT_DAYS * cards / batch)):
        delta = _batch(load, state, batch, none)
        commit(store, meta, state, delta)
    detail = f"{cards:,} cards, two transactions a day for {KEPT_DAYS} days"
    kept = state.event_count / cards

    def size(first: str) -> float:
        return sum(len(blob) for name, blob in store.items() if name.startswith(first)) / cards

    for name, value, more in (
        ("persisted, snapshots", size("s"), f"{kept:.0f} events a card kept"),
        ("persisted, deltas", size("d"), f"{meta.sequence - meta.oldest + 1} of {batch:,} events"),
        ("persisted, all", size(""), detail),
        ("records alone", CARD.itemsize + kept * EVENT.itemsize, "a card and its events, uncompressed"),
        ("working copy", state.arena.nbytes / cards, "with room to grow"),
    ):
        yield Figure(name, value, "bytes/card", (value,), more)

    yield per_item(
        "delta, encode", "us/event", rounds, batch, lambda: _batch(load, state, batch, none).encode,
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


def _batch(load: FeatureLoad, state: GroupState, events: int, none: np.ndarray) -> Delta:
    records = load.next(events)
    cards = state.card_numbers(records)
    state.apply(records, cards)
    return Delta(state.profiles[:0], none, records, cards, np.zeros(events, dtype=np.bool_))


def decoding(rounds: int) -> Figure:
    """A record of the transactions topic into a kernel record, checked."""
    world = World.create(seed=1, cards=100_000, merchants=10_000)
    stream = Stream(world, 5_000.0, 1_780_000_000_000, disturbances=Disturbances.none())
    batches = list(stream.blocks(events=50_000))
    values = [value or b"" for batch in batches for value in batch.encode()[1]]
    column = pa.array(values, type=pa.binary())
    arrivals = np.concatenate([batch.arrival for batch in batches])
    offsets = np.arange(len(values))
    partitions = np.zeros(len(values), dtype=np.int32)
    limits = TimeLimits(7 * 86_400_000, 300_000)

    def call() -> None:
        decoded = transactions.decode(column, partitions, offsets, arrivals, limits)
        assert not decoded.rejections

    call()
    size = sum(map(len, values)) / len(values)
    detail = f"{len(values):,} records of {size:.0f} bytes; one thread"
    return per_item("decode", "us/record", rounds, len(values), lambda: call, scale=1e6, detail=detail)


def training_set(path: Path, rounds: int) -> Figure:
    """The training set of a parquet file, from file to file, in this process."""
    task = Task(TransactionFiles(path))
    with tempfile.TemporaryDirectory() as directory:
        return per_item(
            "training set", "s", rounds, 1,
            lambda: lambda: compute(task, Path(directory) / "features.parquet"), scale=1.0,
            detail=f"{task.transactions.rows:,} rows",
        )  # fmt: skip

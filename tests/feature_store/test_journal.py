"""Persistence of the state: it is rebuilt from its pieces, damage is refused, storage is bounded."""

import struct

import numpy as np
import pytest
from harness.log_world import DAY, HOUR, MINUTE, START
from histories import History, Pieces, assert_same, one_batch, persist, rebuilt
from numpy.typing import NDArray

from feature_store.layout import FORMAT_VERSION, PROFILE, TRANSACTION, UPSERT
from feature_store.state import codec, deltas, event_columns, journal, piece_records
from feature_store.state.arena import MemoryArena
from feature_store.state.codec import StateDamagedError
from feature_store.state.deltas import Delta
from feature_store.state.group_state import GroupState
from feature_store.state.journal import Meta, load_meta
from feature_store.state.piece_records import gather
from feature_store.state.pieces import write_piece
from loadtests.bench.feature_load import FeatureLoad

pytestmark = pytest.mark.unit


@pytest.fixture
def small_pieces(monkeypatch):
    """Sixteen cards a piece instead of 1,024, so that small states have many pieces."""
    for module in (piece_records, journal, deltas):
        monkeypatch.setattr(module, "CARDS_PER_PIECE", 16)


class Traffic:
    """Batches of random transactions and profile changes of many cards, by seed."""

    def __init__(self, cards: int, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._cards = cards
        self._now = START
        self.store, self.state, self.meta = Pieces(), GroupState(MemoryArena()), Meta()

    def _cards_of(self, records: NDArray[np.void]) -> NDArray[np.void]:
        numbers = self._random.integers(1, self._cards, records.size).astype(np.uint64)
        records["lo"], records["hi"] = numbers * np.uint64(0x9E3779B97F4A7C15), numbers
        return records

    def transactions(self, n: int) -> NDArray[np.void]:
        """The next batch; some of its transactions repeat, some are late."""
        self._now += 10 * MINUTE
        rows = self._cards_of(np.zeros(n, dtype=TRANSACTION))
        rows["arrival"] = self._now
        rows["time"] = self._now - self._random.integers(0, 3 * HOUR, n) * self._random.integers(0, 2, n)
        rows["amount"] = self._random.integers(0, 1_500_000, n)
        rows["transaction"] = self._random.integers(0, 10**9, n)
        rows["merchant"] = self._random.integers(0, 50, n)
        rows["country"] = self._random.integers(0, 5, n)
        rows[1::50] = rows[: len(rows[1::50])]
        return rows

    def changes(self, n: int) -> NDArray[np.void]:
        """Profile changes of all kinds, some for cards without transactions."""
        rows = self._cards_of(np.zeros(n, dtype=PROFILE))
        rows["arrival"] = self._now
        rows["change"] = self._random.integers(0, 4, n)
        rows["credit_limit"] = self._random.integers(0, 9, n)
        return rows

    def run(self, batches: int, n: int = 200) -> None:
        """Run and persist batches."""
        for _ in range(batches):
            _, delta = one_batch(self.state, self.changes(n // 20), self.transactions(n))
            persist(self.store, self.meta, self.state, delta)


def logically(state: GroupState) -> list[list[bytes]]:
    """Contents of a state that can affect a result, independent of their positions in the arrays."""
    out = []
    for piece in range(-(-state.numbers_given // piece_records.CARDS_PER_PIECE)):
        records = gather(state, piece)
        # `split` leaves out the ids of transactions too old to be repeated: one state may still have them
        contents = vars(records) | event_columns.split(records.cards, records.events, state.lateness_ms)
        out.append([array.tobytes() for name, array in contents.items() if name != "events"])
    return out


def test_rebuilt_state_equals_the_original_after_many_batches(small_pieces):
    traffic = Traffic(cards=300)
    for _ in range(6):
        traffic.run(15)
        state, meta = rebuilt(traffic.store)
        assert meta == traffic.meta
        assert state.card_count == traffic.state.card_count
        assert state.event_count == traffic.state.event_count
        assert logically(state) == logically(traffic.state)


def test_a_rebuilt_state_continues_like_the_original(small_pieces):
    traffic = Traffic(cards=300)
    traffic.run(20)
    state, _ = rebuilt(traffic.store)
    changes, batch = traffic.changes(10), traffic.transactions(500)
    assert_same(one_batch(state, changes, batch)[0], one_batch(traffic.state, changes, batch)[0])


@pytest.mark.parametrize("lateness_ms", [HOUR, 30 * DAY])
def test_a_state_is_rebuilt_as_it_was_whatever_lateness_is_allowed_now(lateness_ms, monkeypatch):
    monkeypatch.setattr(journal, "SNAPSHOT_BYTES_PER_DELTA_BYTE", 0)
    monkeypatch.setattr(journal, "MOST_DELTAS", 10**6)
    history = History()
    for days in (3, 20):  # forgotten in between: with an hour's lateness, with all but 30 days'
        for at in (0, days * DAY):
            history.tx(at, card=f"used again after {days} days")
    for number in range(513):  # in 34 days: with an hour's lateness it would not become hot
        history.tx(number * 34 * DAY // 513, card="busy")
    store, state, meta = Pieces(), GroupState(MemoryArena()), Meta()
    for part in np.array_split(history.records(), 8):
        _, delta = one_batch(state, history.change_records(), part)
        persist(store, meta, state, delta)
    later = GroupState(MemoryArena(), lateness_ms)
    journal.rebuild(store, load_meta(store), later)
    assert later.lateness_ms == lateness_ms
    later.lateness_ms = state.lateness_ms
    assert logically(later) == logically(state)


def test_batch_of_profile_changes_only_is_kept(small_pieces):
    history = History()
    history.profile("c", 0, risk_tier=2)
    store, state, meta = Pieces(), GroupState(MemoryArena()), Meta()
    _, delta = one_batch(state, history.change_records(), np.zeros(0, dtype=TRANSACTION))
    persist(store, meta, state, delta)
    assert logically(rebuilt(store)[0]) == logically(state)


def test_card_that_never_pays_may_have_any_number_of_versions():
    changes = np.zeros(70_000, dtype=PROFILE)
    changes["lo"] = changes["hi"] = 7
    changes["change"], changes["arrival"] = UPSERT, START + np.arange(changes.size)
    store, state, meta = Pieces(), GroupState(MemoryArena()), Meta()
    for part in np.split(changes, 2):
        _, delta = one_batch(state, part, np.zeros(0, dtype=TRANSACTION))
        persist(store, meta, state, delta)
    assert logically(rebuilt(store)[0]) == logically(state)
    assert gather(state, 0).profiles.size == changes.size


def test_empty_state_and_empty_batches_survive():
    store, state, meta = Pieces(), GroupState(MemoryArena()), Meta()
    nothing = np.zeros(0, dtype=TRANSACTION)
    for _ in range(3):
        _, delta = one_batch(state, np.zeros(0, dtype=PROFILE), nothing)
        persist(store, meta, state, delta)
    again, _ = rebuilt(store)
    assert (again.card_count, again.event_count) == (0, 0)


def test_each_batch_has_a_token_of_its_own():
    traffic = Traffic(cards=50)
    tokens = set()
    for _ in range(10):
        traffic.run(1, n=20)
        tokens.add(load_meta(traffic.store).token)
    assert len(tokens) == 10
    assert "" not in tokens


def test_deltas_are_removed_when_every_piece_is_newer(small_pieces):
    traffic = Traffic(cards=300)
    traffic.run(100)
    kept = sorted(int(name[1:]) for name in traffic.store if name.startswith("d"))
    assert kept == list(range(traffic.meta.oldest, traffic.meta.sequence + 1))
    assert min(traffic.meta.pieces) == traffic.meta.oldest - 1
    assert len(kept) < 50


def test_quiet_group_keeps_a_bounded_number_of_deltas(monkeypatch):
    """A large state and tiny batches: a snapshot is due by the number of deltas, not by their bytes."""
    monkeypatch.setattr(journal, "MOST_DELTAS", 20)
    traffic = Traffic(cards=3000)
    traffic.run(1, n=5000)
    traffic.run(100, n=1)
    assert sum(name.startswith("d") for name in traffic.store) <= 21
    assert logically(rebuilt(traffic.store)[0]) == logically(traffic.state)


def test_snapshots_cost_a_bounded_multiple_of_the_bytes_of_deltas_and_a_piece(small_pieces):
    traffic = Traffic(cards=1000)
    for _ in range(60):
        traffic.run(1, n=100)
        written = traffic.store.written
        largest = max(len(blob) for name, blob in traffic.store.items() if name.startswith("s"))
        assert written["s"] <= journal.SNAPSHOT_BYTES_PER_DELTA_BYTE * written["d"] + largest


def test_deltas_kept_stay_a_small_share_of_the_state(small_pieces):
    """The bytes that a rebuild reads are bounded by the state's size, however long the job has run."""
    traffic = Traffic(cards=1000)
    traffic.run(150, n=100)
    sizes = {kind: sum(len(b) for n, b in traffic.store.items() if n[0] == kind) for kind in "ds"}
    assert sizes["d"] <= 0.3 * sizes["s"]


def test_a_delta_is_replayed_only_for_pieces_older_than_it(small_pieces, monkeypatch):
    """A delta must not be replayed on a piece that was written after it: events would count twice."""
    monkeypatch.setattr(journal, "SNAPSHOT_BYTES_PER_DELTA_BYTE", 1)
    traffic = Traffic(cards=100)
    traffic.run(3)
    snapshot = dict(traffic.store)
    for piece in range(0, len(traffic.meta.pieces), 2):  # make every second piece newer than all deltas
        traffic.store.put(f"s{piece}", write_piece(traffic.state, piece, bytes.fromhex(traffic.meta.head)))
        traffic.meta.pieces[piece] = traffic.meta.sequence
    traffic.store.put("meta", traffic.meta.encode())
    assert traffic.store != snapshot
    assert logically(rebuilt(traffic.store)[0]) == logically(traffic.state)


@pytest.fixture(scope="module")
def persisted() -> Pieces:
    """A store with a snapshot, deltas and meta."""
    traffic = Traffic(cards=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SNAPSHOT_BYTES_PER_DELTA_BYTE", 1)
        traffic.run(8, n=30)
    kinds = {name[0] for name in traffic.store}
    assert kinds == {"d", "m", "s"}
    return traffic.store


def piece_names(store: Pieces) -> list[str]:
    return ["meta", "s0", max(name for name in store if name.startswith("d"))]


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["meta", "snapshot", "delta"])
def test_any_flipped_byte_is_refused(persisted, kind):
    name = piece_names(persisted)[kind]
    blob = persisted[name]
    for at in range(len(blob)):
        damaged = Pieces(persisted)
        damaged[name] = blob[:at] + bytes([blob[at] ^ 0x41]) + blob[at + 1 :]
        with pytest.raises(StateDamagedError, match=r"state piece (meta|snapshot 0|delta \d+) .*; "):
            rebuilt(damaged)


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["meta", "snapshot", "delta"])
def test_any_truncation_is_refused(persisted, kind):
    name = piece_names(persisted)[kind]
    blob = persisted[name]
    for size in range(1 if name == "meta" else 0, len(blob)):
        damaged = Pieces(persisted)
        damaged[name] = blob[:size]
        with pytest.raises(StateDamagedError):
            rebuilt(damaged)
    damaged[name] = blob + b"\0"
    with pytest.raises(StateDamagedError, match="checksum"):
        rebuilt(damaged)


@pytest.mark.parametrize("kind", [1, 2], ids=["snapshot", "delta"])
def test_missing_piece_is_named(persisted, kind):
    damaged = Pieces(persisted)
    name = piece_names(persisted)[kind]
    damaged.remove(name)
    with pytest.raises(StateDamagedError, match=rf"{name} is missing; "):
        rebuilt(damaged)


def two_histories() -> tuple[Traffic, Traffic]:
    """Two attempts at the same epochs: the same 4 batches first, then 30 and 50 rows, or 50 and 30."""
    traffics = []
    for sizes in ((30, 50), (50, 30)):
        traffic = Traffic(cards=40)
        traffic.run(4, n=40)
        for size in sizes:
            traffic.run(1, n=size)
        traffics.append(traffic)
    return traffics[0], traffics[1]


@pytest.mark.parametrize("snapshots", [0, 1], ids=["deltas", "deltas and snapshots"])
def test_no_blob_of_another_attempt_is_accepted(snapshots, small_pieces, monkeypatch):
    """Each blob in turn is replaced by the other attempt's blob of that name, as by a zombie's upload."""
    monkeypatch.setattr(journal, "SNAPSHOT_BYTES_PER_DELTA_BYTE", snapshots)
    attempt, other = two_histories()
    assert {*attempt.store} == {*other.store}
    foreign = [name for name in attempt.store if attempt.store[name] != other.store[name]]
    foreign.remove("meta")  # replaced in the next test
    assert {name[0] for name in foreign} == ({"d", "s"} if snapshots else {"d"})
    assert "d4" not in foreign
    for name in foreign:
        mixed = Pieces(attempt.store)
        mixed[name] = other.store[name]
        with pytest.raises(StateDamagedError, match="is of another history than the pieces beside it"):
            rebuilt(mixed)
    assert logically(rebuilt(attempt.store)[0]) == logically(attempt.state)


def test_no_meta_of_another_attempt_is_accepted(small_pieces):
    attempt, other = two_histories()
    mixed = Pieces(attempt.store)
    mixed["meta"] = other.store["meta"]
    with pytest.raises(StateDamagedError, match="meta is of another history"):
        rebuilt(mixed)


@pytest.mark.parametrize("other", [FORMAT_VERSION - 1, FORMAT_VERSION + 1])
@pytest.mark.parametrize("kind", [0, 1, 2], ids=["meta", "snapshot", "delta"])
def test_a_piece_of_another_format_is_refused(persisted, kind, other):
    pieces = Pieces(persisted)
    name = piece_names(persisted)[kind]
    blob = bytearray(pieces[name])
    struct.pack_into("B", blob, 4, other)
    pieces[name] = bytes(blob)
    with pytest.raises(StateDamagedError, match=rf"has format {other}, .*run the release that wrote"):
        rebuilt(pieces)


def test_a_blob_of_another_program_is_refused():
    with pytest.raises(StateDamagedError, match="is not a piece of this job's state"):
        codec.decode(b"PAR1" + bytes(100), "x")


def test_the_codec_returns_arrays_unchanged():
    arrays = {
        "none": np.zeros(0, dtype=np.int64),
        "numbers": np.arange(5, dtype=np.uint16),
        "floats": np.array([np.nan, -0.0, np.inf]),
        "records": np.ones(3, dtype=PROFILE),
    }
    decoded = codec.decode(codec.encode(arrays), "x")
    for name, array in arrays.items():
        again = decoded[name] if name in decoded else codec.records(decoded, name, array.dtype)
        assert again.tobytes() == array.tobytes()
    assert codec.decode(codec.encode({}), "x") == {}


def test_a_delta_returns_the_fields_that_the_state_depends_on():
    traffic = Traffic(cards=50)
    _, delta = one_batch(traffic.state, traffic.changes(5), traffic.transactions(33))
    decoded = Delta.decode(delta.encode(), "x")
    for name in ("change_cards", "cards", "alerted", "added", "evicted"):
        assert getattr(decoded, name).tobytes() == getattr(delta, name).tobytes()
    for field in ("arrival", "credit_limit", "change", "lsn", "offset", "status"):
        assert (decoded.changes[field] == delta.changes[field]).all()
    for field in ("time", "arrival", "amount", "transaction", "merchant", "country", "partition"):
        assert (decoded.transactions[field] == delta.transactions[field]).all()


@pytest.mark.parametrize(("resolution_ms", "most"), [(1, 760), (1000, 670)])
def test_snapshot_takes_few_bytes_a_card(resolution_ms, most):
    """A card keeps eighty events, with times in ms or whole seconds; docs/measurements.md has the figures."""
    state = GroupState(MemoryArena())
    FeatureLoad(piece_records.CARDS_PER_PIECE, resolution_ms=resolution_ms).warm(state, 40, 4_000)
    assert len(write_piece(state, 0)) / piece_records.CARDS_PER_PIECE < most


def test_column_holds_any_numbers():
    for values in (
        np.array([np.iinfo(np.int64).min, 0, np.iinfo(np.int64).max]),
        np.array([0, np.iinfo(np.uint64).max], dtype=np.uint64),
        np.array([-5, -5, -5], dtype=np.int16),
        np.append(np.arange(0, 100_000, 1000), 999_001),
        np.arange(-(10**13), 10**13, 10**11) * 60,
    ):
        assert codec.decode(codec.encode({"x": values}), "x")["x"].tobytes() == values.tobytes()


def test_events_of_idle_cards_are_freed():
    """After months of silence a card's next transaction starts it afresh, without the events before."""
    history = History()
    for number in range(100):
        history.tx(number * MINUTE)
    history.tx(100 * DAY)
    state = GroupState(MemoryArena())
    one_batch(state, history.change_records(), history.records())
    assert state.event_count == 1

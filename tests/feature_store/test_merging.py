"""A state that is put together from parts of another one decides like that one."""

import numpy as np
import pytest
from golden.golden_state import LAST, history
from histories import History, Judged, one_batch
from numpy.typing import NDArray

from feature_store.layout import PLACE
from feature_store.state.arena import MemoryArena
from feature_store.state.codec import StateDamagedError
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, append, rebuild, seal, write_whole
from feature_store.state.merging import merge

pytestmark = pytest.mark.unit

PARTITIONS = 3


def homes(cards: NDArray[np.void]) -> NDArray[np.int32]:
    """A partition for each card, by one of its hashes."""
    partitions: NDArray[np.int32] = (cards["murmur2"] % PARTITIONS).astype(np.int32)
    return partitions


def homes_elsewhere(cards: NDArray[np.void]) -> NDArray[np.int32]:
    """A partition in another topic for each card, by the other hash."""
    partitions: NDArray[np.int32] = (cards["crc32"] % (PARTITIONS + 2)).astype(np.int32)
    return partitions


def places(records: NDArray[np.void]) -> NDArray[np.void]:
    """A place for each card."""
    result = np.zeros(records.size, dtype=PLACE)
    result["murmur2"], result["crc32"] = records["lo"] >> np.uint64(33), records["hi"] >> np.uint64(32)
    result["home"] = homes(result)
    return result


def log(of: History) -> tuple[NDArray[np.void], NDArray[np.void], NDArray[np.void]]:
    """Profile changes, and transactions in their partitions: all but the last, and the last."""
    records = of.records()
    records["partition"] = places(records)["home"]
    return of.change_records(), records[:-LAST], records[-LAST:]


def outcome(judged: Judged) -> str:
    return repr((judged.features.tolist(), judged.duplicate.tolist(), judged.standing, judged.suspicious))


def split(state: GroupState, *parts: list[int]) -> list[GroupState]:
    """The state in parts, by partitions; each is saved and rebuilt."""
    result = []
    for partitions in parts:
        part, store, meta = GroupState(MemoryArena()), MemoryPieces(), Meta()
        merge(part, state, partitions, homes, homes)
        part.end_replay()
        write_whole(store, meta, part)
        seal(store, meta)
        rebuilt = GroupState(MemoryArena())
        rebuild(store, meta, rebuilt)
        result.append(rebuilt)
    return result


def decided(state: GroupState, batch: NDArray[np.void], partitions: list[int]) -> str:
    mine = batch[np.isin(batch["partition"], partitions)]
    return outcome(one_batch(state, log(history())[0][:0], mine, places)[0])


def test_ordinary_idle_hot_and_evicted_cards_are_split_and_merged_again():
    changes, before, after = log(history())
    state = GroupState(MemoryArena())
    one_batch(state, changes, before, places)
    first, second = split(state, [0, 2], [1])
    assert first.card_count + second.card_count == state.card_count
    assert first.cards_without_profile + second.cards_without_profile == state.cards_without_profile
    whole = GroupState(MemoryArena())
    for part in (second, first):
        merge(whole, part, range(PARTITIONS), homes, homes)
    whole.end_replay()
    for partitions in ([0], [1], [2], [0, 1, 2]):
        # of each alternative a copy, because deciding changes it
        (expected,), (merged,) = split(state, partitions), split(whole, partitions)
        assert decided(merged, after, partitions) == decided(expected, after, partitions)
    for part, partitions in ((first, [0, 2]), (second, [1])):
        (expected,) = split(state, partitions)
        assert decided(part, after, partitions) == decided(expected, after, partitions)
    assert decided(whole, after, [0, 1, 2]) == decided(state, after, [0, 1, 2])


def test_cards_move_to_the_partitions_of_another_topic():
    changes, before, after = log(history())
    state = GroupState(MemoryArena())
    one_batch(state, changes, before, places)
    after["partition"] = homes_elsewhere(places(after))
    whole = GroupState(MemoryArena())
    for partition in range(PARTITIONS + 2):
        part = GroupState(MemoryArena())
        merge(part, state, [partition], homes, homes_elsewhere)
        part.end_replay()
        (expected,) = split(state, list(range(PARTITIONS)))
        assert decided(part, after, [partition]) == decided(expected, after, [partition])
        merge(whole, part, [partition], homes_elsewhere, homes_elsewhere)
    whole.end_replay()
    assert whole.card_count == state.card_count


def test_the_history_goes_on_after_a_whole_state():
    changes, before, after = log(history())
    state, store, meta = GroupState(MemoryArena()), MemoryPieces(), Meta()
    one_batch(state, changes, before, places)
    state.take_added()
    write_whole(store, meta, state)
    _, delta = one_batch(state, changes[:0], after, places)
    append(store, meta, state, delta)
    seal(store, meta)
    rebuilt = GroupState(MemoryArena())
    rebuild(store, meta, rebuilt)
    assert rebuilt.card_count == state.card_count
    assert decided(rebuilt, after, [0, 1, 2]) == decided(state, after, [0, 1, 2])


def test_a_card_without_a_partition_is_not_dropped_in_silence():
    changes, _, _ = log(history())
    state = GroupState(MemoryArena())
    state.change_profiles(changes, state.card_numbers(changes))
    with pytest.raises(StateDamagedError, match="has no partition"):
        merge(GroupState(MemoryArena()), state, range(PARTITIONS), homes, homes)

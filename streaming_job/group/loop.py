"""One micro-batch of one key group: fold tables, compute features, score, decide, persist.

Pure: knows packets in, an outcome out, and a store of pieces; neither Spark nor Kafka. The order is fixed:
tables first (what they say is looked up as of each transaction's arrival, so reading ahead changes
nothing), then the transactions in the order of the log (`deciding`), then what has to survive.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.deltas import Delta
from feature_store.group_state import GroupState
from feature_store.journal import Meta, PieceStore, commit
from feature_store.layout import PROFILE, TRANSACTION
from streaming_job.decode import snapshots
from streaming_job.contracts.topics import Topics
from streaming_job.decide.decider import Decider, LoadModel, Stopwatch
from streaming_job.progress.measures import measure
from streaming_job.progress.outcome import Outcome
from streaming_job.packets import Packet
from streaming_job.decide.rollout_history import RolloutHistory


def process(
    group: int,
    packets: list[Packet],
    state: GroupState,
    meta: Meta,
    store: PieceStore,
    topics: Topics,
    load_model: LoadModel,
) -> Outcome:
    """Run a batch and persist it; `state` and `meta` move on.

    Args:
        group: number of the key group.
        packets: all packets of the batch for this group, in any order.
        state: state after the last batch.
        meta: where its persisted pieces stand.
        store: the persisted pieces.
        topics: topic names.
        load_model: gives the scorer of a rollout.

    Raises:
        NoRolloutError: there are transactions and no model to decide them.
        ModelError: the model of a rollout cannot be had.
    """
    outcome = Outcome()
    watch = Stopwatch(outcome)
    batch, quotes = _in_log_order(packets)
    changes = np.concatenate([packet.changes for packet in packets] or [np.zeros(0, dtype=PROFILE)])
    changes = changes[np.lexsort((changes["offset"], changes["partition"]))]
    snapshots.mark_later_ones(changes, packets, meta.extra)
    for packet in packets:
        outcome.dead_letters += packet.dead_letters

    rollouts = RolloutHistory.restore(meta.extra.get("rollouts", []))
    refused = rollouts.fold([record for packet in packets for record in packet.rollouts], topics)
    new_rollouts = sum(len(packet.rollouts) for packet in packets)
    meta.extra["rollouts"] = rollouts.records
    if group == 0:  # every group gets every rollout; one speaks of them
        outcome.dead_letters += refused
        outcome.counts["rollouts"] = new_rollouts - len(refused)

    change_cards = state.card_numbers(changes)
    outcome.counts["profile_changes"] = changes.size
    outcome.counts["late_table_changes"] = state.change_profiles(changes, change_cards)
    watch.lap("tables")
    cards = state.card_numbers(batch)
    watch.lap("cards")
    decider = Decider(state, rollouts, topics.transactions, load_model, outcome, watch)
    decided = decider.decide(batch, quotes, cards)
    measure(outcome, batch, cards, decided, state)
    outcome.sizes[group] = {
        "cards": state.card_count,
        "events": state.event_count,
        "local_bytes": state.arena.nbytes,
    }
    watch.lap("measure")
    accepted = decided.accepted
    delta = Delta(changes, change_cards, batch[accepted], cards[accepted], decided.alerted[accepted])
    commit(store, meta, state, delta)
    watch.lap("persist")
    return outcome


def _in_log_order(packets: list[Packet]) -> tuple[NDArray[np.void], pa.BinaryArray]:
    """The transactions of all packets by partition and offset, and what alerts quote of them."""
    filled = [packet for packet in packets if packet.transactions.size]
    if not filled:
        return np.zeros(0, dtype=TRANSACTION), pa.array([], type=pa.binary())
    # a packet is a piece of one partition in its own order, so whole packets are sorted, not their rows
    filled.sort(key=lambda packet: packet.transactions[["partition", "offset"]][0].item())
    batch = np.concatenate([packet.transactions for packet in filled])
    return batch, pa.concat_arrays([packet.quotes for packet in filled])

"""One micro-batch of one key group: fold tables, compute features, score, decide, persist.

Pure: knows packets in, an outcome out, and a store of pieces; neither Spark nor Kafka. The order is fixed:
tables first (what they say is looked up as of each transaction's arrival, so reading ahead changes
nothing), then features of the whole batch, then scores, then decisions in the order of the log.
"""

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.catalogue import COLUMN
from feature_store.deltas import Delta
from feature_store.group_state import Applied, GroupState
from feature_store.journal import Meta, PieceStore, commit
from feature_store.layout import BLOCKED, PROFILE, TRANSACTION
from models import guarded
from models.policy import BLOCKED_CARD, DECLINE, REVIEW, SCORE, VELOCITY_5M
from models.registry import ModelRef
from models.scoring import Scorer
from streaming_job import alerts, snapshots
from streaming_job.contracts.topics import Topics
from streaming_job.outcome import ARRIVAL_BINS, LATENESS_MS, SCORES, Outcome, histogram
from streaming_job.packets import Packet
from streaming_job.rollout_history import RolloutHistory

LoadModel = Callable[[ModelRef], Scorer]


class Stopwatch:
    """Milliseconds by phase, for progress records only."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        """End a phase."""
        now = time.perf_counter()
        self._outcome.phases[phase] += 1000 * (now - self._last)  # type: ignore[assignment]
        self._last = now


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
    batch, values = _in_log_order(packets)
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
    applied = state.apply(batch, cards)
    watch.lap("features")
    alerted = np.zeros(batch.size, dtype=np.bool_)
    if batch.size:
        alerted = _decide(batch, values, cards, applied, state, rollouts, topics, load_model, outcome, watch)
    accepted = ~applied.duplicate
    delta = Delta(changes, change_cards, batch[accepted], cards[accepted], alerted[accepted])
    commit(store, meta, state, delta)
    watch.lap("persist")
    _measure(outcome, batch, applied, state)
    watch.lap("measure")
    return outcome


def _in_log_order(packets: list[Packet]) -> tuple[NDArray[np.void], pa.BinaryArray]:
    filled = [packet for packet in packets if packet.transactions.size]
    if not filled:
        return np.zeros(0, dtype=TRANSACTION), pa.array([], type=pa.binary())
    batch = np.concatenate([packet.transactions for packet in filled])
    values = pa.concat_arrays([packet.values for packet in filled])
    order = np.lexsort((batch["offset"], batch["partition"]))
    if (order[1:] > order[:-1]).all():
        return batch, values
    return batch[order], values.take(pa.array(order))


def _decide(
    batch: NDArray[np.void],
    values: pa.BinaryArray,
    cards: NDArray[np.int32],
    applied: Applied,
    state: GroupState,
    rollouts: RolloutHistory,
    topics: Topics,
    load_model: LoadModel,
    outcome: Outcome,
    watch: Stopwatch,
) -> NDArray[np.bool_]:
    """Score and decide; alerts go to the outcome. Returns which rows became alerts, shape (n,)."""
    known, deciding = rollouts.in_force(batch["arrival"])
    scores = np.full(batch.size, np.nan)
    threshold = np.empty(batch.size)
    most = np.empty(batch.size)
    scorers: dict[int, Scorer] = {}
    failures: dict[int, str] = {}
    for number in np.unique(deciding).tolist():
        rollout = known[number]
        scorers[number] = load_model(rollout.model)
        rows = np.flatnonzero((deciding == number) & ~applied.duplicate)
        scores[rows], failed = guarded.score(scorers[number], applied.features[rows])
        failures.update((int(rows[at]), why) for at, why in failed.items())
        threshold[deciding == number] = rollout.policy.threshold
        most[deciding == number] = rollout.policy.max_count_5m
    watch.lap("score")
    profiles = state.profiles[applied.version]  # -1 takes the last one; masked below
    fired = {
        SCORE: scores >= threshold,
        VELOCITY_5M: applied.features[:, COLUMN["count_5m"]] > most,
        BLOCKED_CARD: (applied.version >= 0) & (profiles["status"] == BLOCKED),
    }
    alerted: NDArray[np.bool_] = np.logical_or.reduce(list(fired.values())) & ~applied.duplicate
    rows = np.flatnonzero(alerted)
    day, total = state.count_alerts(cards, batch["arrival"], alerted, applied.restarted)
    outcome.counts["scoring_failures"] = len(failures)
    contributions = np.zeros((rows.size, applied.features.shape[1]))
    for number, scorer in scorers.items():
        mine = np.flatnonzero((deciding[rows] == number) & ~np.isnan(scores[rows]))
        contributions[mine], unexplained = guarded.explain(scorer, applied.features[rows[mine]])
        failures.update((int(rows[mine[at]]), guarded.UNEXPLAINED) for at in unexplained)
    for at, row in enumerate(rows.tolist()):
        rules = tuple(rule for rule, rows_fired in fired.items() if rows_fired[row])
        outcome.rules.update(rules)
        outcome.alerts.append(
            alerts.build(
                values[row].as_py(),
                batch[row],
                topics.transactions,
                decision=DECLINE if BLOCKED_CARD in rules else REVIEW,
                rules=rules,
                score=None if np.isnan(scores[row]) else float(scores[row]),
                model_failure=failures.get(row),
                rollout=known[int(deciding[row])],
                features=applied.features[row],
                contributions=contributions[at],
                profile=profiles[row] if applied.version[row] >= 0 else None,
                suspicious_day=int(day[at]),
                suspicious_total=int(total[at]),
                late=bool(applied.late[row]),
            )
        )
    outcome.scores = histogram(scores, SCORES)
    newest = known[int(deciding.max())]
    outcome.rollout = {"rollout_id": newest.rollout_id, "model": newest.model}
    watch.lap("decide")
    return alerted


def _measure(outcome: Outcome, batch: NDArray[np.void], applied: Applied, state: GroupState) -> None:
    accepted = ~applied.duplicate
    outcome.counts["transactions"] = int(accepted.sum())
    outcome.counts["duplicates"] = int(applied.duplicate.sum())
    outcome.counts["late"] = int((applied.late & accepted).sum())
    outcome.counts["missing_profile"] = int(((applied.version < 0) & accepted).sum())
    outcome.state.update(cards=state.card_count, events=state.event_count, local_bytes=state.arena.nbytes)
    if not batch.size:
        return
    for partition in np.unique(batch["partition"]).tolist():
        outcome.max_event_times[partition] = int(batch["time"][batch["partition"] == partition].max())
    outcome.lateness = histogram((batch["arrival"] - batch["time"]).astype(np.float64), LATENESS_MS)
    # from the first arrival on: bins narrower than the precision of a large timestamp are refused
    first = batch["arrival"].min()
    counts, edges = np.histogram(batch["arrival"] - first, bins=ARRIVAL_BINS)
    outcome.arrivals = [(counts, edges + first)]

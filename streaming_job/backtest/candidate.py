"""The candidate of a backtest: a model and a policy, promoted at the beginning of the window. Pure."""

from collections.abc import Mapping, Sequence

from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import installation
from models.rollouts.state import Plan
from streaming_job.backtest.log import ArchiveLog, BacktestError
from streaming_job.contracts.topics import Topics
from streaming_job.decide.rollout_history import EventVerdict, RolloutHistory, RolloutRecord

ROLLOUT = "backtest"
"""rollout_id of the candidate, in its alerts."""


def live_plans(
    log: ArchiveLog, topics: Topics, computed: Sequence[str], set_aside: Mapping[int, str]
) -> RolloutHistory:
    """Return the archived rollouts, with the verdicts of the live job on their models.

    Args:
        set_aside: see `Decided`.

    Raises:
        BacktestError: the archive has no rollouts.
    """
    records = [
        row
        for partition in log.partitions(topics.model_rollouts)
        for batch in log.records(topics.model_rollouts, partition)
        for row in RolloutRecord.of(batch)
    ]
    history = RolloutHistory.judged(records, set_aside, topics, computed)
    if not history.records:
        raise BacktestError(
            f"the archive has no records of {topics.model_rollouts}; archive them, or give --model and policy"
        )
    return history


def newest_plan(history: RolloutHistory) -> Plan:
    """Return the plan in force at the end of the archive.

    Raises:
        BacktestError: no plan can decide.
    """
    if history.newest is None:
        raise BacktestError("no archived rollout can decide; give --model, and a policy")
    return history.newest


def promoted(
    model: ModelRef, policy: Policy, at: int, topics: Topics, computed: Sequence[str]
) -> RolloutHistory:
    """Return the rollouts of a job in which only the candidate was ever promoted.

    Args:
        at: arrival from which it decides, ms.
        computed: features that the release computes, name:version.

    Raises:
        BacktestError: the release does not compute the model's features.
    """
    history = RolloutHistory(computed)
    events = installation(model, policy, ROLLOUT, "fraud backtest", at)
    records = [RolloutRecord(at, offset, event.to_json()) for offset, event in enumerate(events)]
    if refused := history.fold(records, topics, lambda *_: EventVerdict()):
        raise BacktestError(f"{model} cannot decide: {refused[0].detail}")
    return history

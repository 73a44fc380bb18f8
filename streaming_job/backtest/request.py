"""A requested backtest: chooses window, history and candidate, runs it, and returns its report."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from feature_store.catalogue import DAY_MS
from models.errors import ModelError
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import Type
from streaming_job.backtest import run, window
from streaming_job.backtest.candidate import live_plans, newest_plan
from streaming_job.backtest.log import ArchiveLog, BacktestError, Decided
from streaming_job.backtest.report import Inputs, report_of
from streaming_job.backtest.run import Job, Progress, Task
from streaming_job.contracts.topics import Topics
from streaming_job.decide.rollout_history import RolloutHistory
from streaming_job.log.records import Offsets


@dataclass(frozen=True)
class Request:
    """What a backtest is asked for."""

    model: str = ""
    """NAME/VERSION; empty: the model that is live at the end of the archive."""
    policy: Policy | None = None
    """None: the policy that is live at the end of the archive."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the policy that are replaced, by name."""
    days: int = 7
    """Calendar days (UTC) to compare, the archive's last ones."""
    until: date | None = None
    """First day that is not compared any more; None: all days of the archive count."""
    history_days: int | None = None
    """Days before the window from which the state is made; None: all that the archive has."""
    budget: float | None = None
    """Greatest number of alerts a day; None: no budget."""


FindModel = Callable[[str, str], ModelRef]
"""Function (name, version) -> reference of a registered model; raises ModelError without one."""


def backtest(
    log: ArchiveLog,
    job: Job,
    request: Request,
    decided: Decided,
    find_model: FindModel,
    processes: int = 1,
    progress: Progress = lambda rows: None,
) -> dict[str, Any]:
    """Run a backtest, and return its report (`report.report_of`).

    Raises:
        BacktestError: the archive lacks something that it needs.
        ModelError: the model cannot be found, loaded or run; or a parameter of the policy has a bad value.
    """
    topics = job.topics
    _require_archived(log, topics)
    if request.budget is not None and not 0 < request.budget < math.inf:
        raise BacktestError(f"a budget of {request.budget} alerts a day cannot be kept; give a finite number")
    extents = log.extents(topics.transactions).values()
    compared, history = window.choose(extents, job.limits.lateness_ms, request.days, request.until)
    ends = [compared.until, *_undecided(log, topics.transactions, decided.positions)]
    compared = replace(compared, until=min(ends))
    if (moved_at := decided.moved_at) is not None:
        compared = replace(compared, since=max(compared.since, moved_at))
        history = replace(history, is_whole=False, complete_from=max(history.complete_from, moved_at))
    if compared.until <= compared.since:
        raise BacktestError(
            f"by the archived {topics.job_progress} the job has decided nothing of these days; archive more"
        )
    if job.merchants is not None:
        compared = replace(compared, until=min(compared.until, run.merchant_facts(log, job)[1]))
        if compared.until <= compared.since:
            raise BacktestError(f"the archived {topics.merchant_facts} do not reach the window; archive more")
    history_from = _history_from(request, compared.since, history.begins)
    if history_from > history.begins:
        history = replace(
            history,
            begins=history_from,
            is_whole=False,
            complete_from=max(history_from, history.complete_from),
        )
    model, policy = _candidate(log, job, request, decided, find_model)
    live = run.read_alerts(log, topics, compared, 0 if history.is_whole else history_from)
    history = replace(history, is_whole=history.is_whole and not live.has_moved)
    labels = run.read_labels(log, topics, compared)
    task = Task(log, job, model, policy, compared, history, labels.by_hash(), live.before())
    tally = run.run(task, processes, progress)
    return report_of(Inputs(model, policy, history, tally, live, labels, request.budget))


def _require_archived(log: ArchiveLog, topics: Topics) -> None:
    """Check that the archive has the topics without which a backtest would decide or compare otherwise."""
    names = ["transactions", "profiles", "fraud_alerts", "suppressed_alerts", "dead_letters"]
    if topics.record_schemas:
        names.append("record_schemas")
    for name in names:
        if not log.partitions(topic := getattr(topics, name)):
            raise BacktestError(
                f"the archive has no {topic}; correct FRAUD_TOPICS__{name.upper()}, or archive it"
            )


def _undecided(log: ArchiveLog, topic: str, decided: Offsets) -> Iterator[int]:
    """Yield the arrival from which on the job has not decided a partition's transactions."""
    for partition in log.extents(topic):
        arrival = log.arrival(topic, partition, decided.get((topic, partition), 0))
        if arrival is not None:
            yield arrival


def _history_from(request: Request, since: int, begins: int) -> int:
    return begins if request.history_days is None else max(begins, since - request.history_days * DAY_MS)


def _candidate(
    log: ArchiveLog, job: Job, request: Request, decided: Decided, find_model: FindModel
) -> tuple[ModelRef, Policy]:
    """Return the model and the policy: those asked for, else the live ones."""
    name, _, version = request.model.rpartition("/")
    if request.model and not (name and version):
        raise ModelError(f"{request.model!r} names no model; give NAME/VERSION")
    if request.model and request.policy is not None:
        return find_model(name, version), replace(request.policy, **request.changes)
    plans = live_plans(log, job.topics, job.computed, decided.set_aside)
    champion = newest_plan(plans).champion
    model = (_rolled_out(plans, name, version) or find_model(name, version)) if name else champion.model
    return model, replace(request.policy or champion.policy, **request.changes)


def _rolled_out(plans: RolloutHistory, name: str, version: str) -> ModelRef | None:
    """Return a model as a rollout has pinned it, so that no registry is needed."""
    proposed = [accepted.event for accepted in plans.events if accepted.event.type is Type.PROPOSED]
    refs = (challenger.model for event in proposed for challenger in event.challengers)
    return next((ref for ref in refs if (ref.name, ref.version) == (name, version)), None)

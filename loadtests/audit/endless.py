"""`fraud verify --follow`: steps of a continuing audit, until it is stopped; findings are loud."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from loadtests.audit.exported import AuditMetrics
from loadtests.audit.follow import Follower
from loadtests.audit.judging import Load
from loadtests.audit.memory import Memory
from loadtests.audit.topic_log import Log, TopicReadError
from streaming_job.settings import JobSettings

logger = logging.getLogger(__name__)
LINES_PER_STEP = 20
"""Findings of a step that are logged in words; the rest are counted."""


@dataclass(frozen=True)
class Plan:
    """How a continuing audit is run."""

    share: float = 0.05
    """Of the cards."""
    behind_s: float = 60.0
    """Age of what is audited."""
    every_s: float = 5.0
    """From one step to the next."""
    state: Path | None = None
    """File with what the audit remembers; None: a restart begins at the beginning of the log."""
    save_every_s: float = 300.0
    metrics_port: int = 9109
    """On the loopback interface; 0: any."""


def follow(
    log: Log,
    settings: JobSettings,
    load: Load,
    plan: Plan,
    stop: Event,
    *,
    clock: Callable[[], float] = time.time,
    started: Callable[[int], None] = lambda port: None,
) -> None:
    """Audit what the job does until asked to stop; what is known then is saved.

    Args:
        log: where the topics are.
        settings: of the job.
        load: gives the model of a rollout.
        plan: how.
        stop: ends it when set.
        clock: seconds since 1970-01-01 UTC.
        started: gets the port of the metrics.

    Raises:
        FollowError: transactions are gone that were not audited.
        MemoryFileError: the file of an earlier audit is of no use.
    """
    memory = _memory(settings, plan)
    follower = Follower(log, settings, load, memory, clock)
    logger.warning("audit of a share of %g of the cards: %s", plan.share, _begins(memory))
    start = clock()

    def lag_s() -> float:
        return clock() - (start if follower.point is None else follower.point.seen_s)

    metrics = AuditMetrics(_outputs(settings), lag_s)
    loud = _Loud(metrics)
    follower.findings.tell = loud.tell
    port, end = metrics.serve(plan.metrics_port)
    started(port)

    def seen() -> None:
        metrics.advance(follower.checked, 0)
        if stop.is_set():
            raise _StoppedError("asked to stop in the middle of a step")

    try:
        saved = clock()
        while not stop.is_set():
            # any other error may come in the middle of a chunk: what is remembered then is of no use
            try:
                follower.step(seen)
                metrics.advance(follower.checked, follower.audited_until_s)
            except TopicReadError as fault:
                logger.warning("audit waits: %s", fault)
            except _StoppedError:
                break
            loud.end_step()
            if plan.state is not None and clock() - saved >= plan.save_every_s:
                memory.save(plan.state)
                saved = clock()
            stop.wait(plan.every_s)
        if plan.state is not None:
            memory.save(plan.state)
    finally:
        end()


class _StoppedError(Exception):
    """The audit was asked to stop, between two chunks."""


def _memory(settings: JobSettings, plan: Plan) -> Memory:
    if plan.state is not None and plan.state.exists():
        return Memory.load(plan.state, settings, plan.share, plan.behind_s)
    return Memory.empty(settings, plan.share, plan.behind_s)


def _outputs(settings: JobSettings) -> tuple[str, ...]:
    topics = settings.topics
    return topics.fraud_alerts, topics.shadow_alerts, topics.suppressed_alerts, topics.dead_letters


def _begins(memory: Memory) -> str:
    if memory.positions:
        stands = ", ".join(
            f"{topic}[{partition}]@{memory.positions[topic, partition]}"
            for topic, partition in sorted(memory.arrivals)
        )
        return (
            f"goes on at {stands or 'the beginning of the log'}, with {len(memory.cards)} cards from its file"
        )
    if memory.told_from_ms:
        moment = datetime.fromtimestamp(memory.told_from_ms / 1000, UTC).isoformat(timespec="seconds")
        return (
            f"reads the log from its beginning and audits what arrived since {moment}: older alerts are gone"
        )
    return "reads the log from its beginning and audits all of it"


class _Loud:
    """Logs and counts findings."""

    def __init__(self, metrics: AuditMetrics) -> None:
        self._metrics, self._lines = metrics, 0

    def tell(self, topic: str, kind: str, text: str) -> None:
        self._metrics.find(topic, kind)
        self._lines += 1
        if self._lines <= LINES_PER_STEP:
            logger.error("AUDIT: %s on %s: %s", kind, topic, text)

    def end_step(self) -> None:
        if self._lines > LINES_PER_STEP:
            logger.error("AUDIT: %d findings more in this step", self._lines - LINES_PER_STEP)
        self._lines = 0

"""`fraud verify --follow`: runs a continuous audit until it is stopped; logs and exports its findings."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from feature_store.spark_surroundings import LOOPBACK
from feature_store.utc import moment_of
from loadtests.audit.comparison import output_topics
from loadtests.audit.core import Load
from loadtests.audit.exported import AuditMetrics
from loadtests.audit.follow import ContinuousAudit
from loadtests.audit.memory import Memory
from loadtests.audit.topic_log import Log, TopicReadError
from streaming_job.metric_families import serve
from streaming_job.runtime import pauses
from streaming_job.settings import JobSettings

logger = logging.getLogger(__name__)
LINES_PER_STEP = 20
"""Maximum number of findings of a step that are logged in full; the rest are only counted."""


@dataclass(frozen=True)
class EndlessOptions:
    """Parameters of a continuous audit."""

    share: float = 0.05
    """Share of the cards that is audited."""
    behind_s: float = 60.0
    """Minimal age of audited records, seconds."""
    every_s: float = 5.0
    """Time between two steps, seconds."""
    state: Path | None = None
    """File with the audit's state; None: a restart reads the log from its beginning."""
    save_every_s: float = 300.0
    metrics_port: int = 9109
    """0: any free port."""
    metrics_host: str = LOOPBACK


def follow(
    log: Log,
    settings: JobSettings,
    load: Load,
    options: EndlessOptions,
    stop: Event,
    *,
    clock: Callable[[], float] = time.time,
    started: Callable[[int], None] = lambda port: None,
) -> None:
    """Audit the job's output until stopped, then save the state.

    Args:
        started: called with the port of the metrics.

    Raises:
        TopicReadError: a topic cannot be read at the start; later the audit retries.
    """
    # no grace: what a stop leaves unread, the next run reads
    with suppress(pauses.StoppedError), pauses.ended_by(stop.is_set, grace_s=0.0):
        memory = _memory(settings, options)
        follower = ContinuousAudit(log, settings, load, memory, clock)
        logger.warning("audit of a share of %g of the cards: %s", options.share, _start_text(memory))
        start = clock()

        def lag_s() -> float:
            return clock() - (start if follower.point is None else follower.point.seen_s)

        metrics = AuditMetrics(output_topics(settings.topics), lag_s)
        finding_log = _FindingLog(metrics)
        follower.findings.on_finding = finding_log.add
        port, end = serve(metrics.registry, options.metrics_port, options.metrics_host)
        started(port)

        def after_chunk() -> None:
            metrics.advance(follower.checked, 0)
            if stop.is_set():
                raise pauses.StoppedError("stopped in the middle of a step")

        try:
            saved = clock()
            while not stop.is_set():
                # TopicReadError and StoppedError leave no chunk half judged; after any other error the
                # state must not be saved
                try:
                    follower.step(after_chunk)
                    metrics.advance(follower.checked, follower.audited_until_s)
                except TopicReadError as fault:
                    logger.warning("the audit retries at its next step: %s", fault)
                except pauses.StoppedError:
                    finding_log.end_step()
                    break
                finding_log.end_step()
                if options.state is not None and clock() - saved >= options.save_every_s:
                    memory.save(options.state)
                    saved = clock()
                stop.wait(options.every_s)
            if options.state is not None:
                memory.save(options.state)
        finally:
            end()


def _memory(settings: JobSettings, options: EndlessOptions) -> Memory:
    if options.state is not None and options.state.exists():
        return Memory.load(options.state, settings, options.share, options.behind_s)
    return Memory.empty(settings, options.share, options.behind_s)


def _start_text(memory: Memory) -> str:
    if memory.positions:
        positions = ", ".join(
            f"{topic}[{partition}]@{memory.positions[topic, partition]}"
            for topic, partition in sorted(memory.arrivals)
        )
        cards = sum(len(history.cards) for history in memory.histories.values())
        return f"continues at {positions or 'the beginning of the log'} with {cards} saved cards"
    if memory.complete_from_ms:
        moment = moment_of(memory.complete_from_ms).isoformat(timespec="seconds")
        return (
            f"reads the log from its beginning and audits arrivals since {moment}: older outputs were deleted"
        )
    return "reads the log from its beginning and audits all of it"


class _FindingLog:
    """Logs findings and counts them in the metrics."""

    def __init__(self, metrics: AuditMetrics) -> None:
        self._metrics, self._lines = metrics, 0

    def add(self, topic: str, kind: str, text: str) -> None:
        self._metrics.count(topic, kind)
        self._lines += 1
        if self._lines <= LINES_PER_STEP:
            logger.error("AUDIT: %s on %s: %s", kind, topic, text)

    def end_step(self) -> None:
        if self._lines > LINES_PER_STEP:
            logger.error("AUDIT: %d more findings in this step", self._lines - LINES_PER_STEP)
        self._lines = 0

"""The second job of a replay: runs until the range is decided, and yields to the live job.

It runs on processor time that nothing else wants, and all its processes are stopped (SIGSTOP) while the live
job is behind the log by more than a limit, or slower than a limit. After STOPPED_S they run for a moment
nevertheless, because the brokers abort a Kafka transaction that stays open for too long.
"""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from threading import Event

import psutil

from deploy.local import processes
from deploy.local.child import Child
from deploy.local.files import replace_json
from deploy.local.launch import FRAUD
from deploy.replay import inputs
from deploy.replay.record import Replay, ReplayError
from feature_store.errors import FraudError
from loadtests.audit.topic_log import TopicLog
from loadtests.rig.report import Say
from service.health.recent import RecentRates
from service.replays.progress import FILE, Progress, State
from streaming_job.log import clients
from streaming_job.progress.totals import Totals
from streaming_job.settings import JobSettings
from streaming_job.takeover.handover import newest_records

LOOK_S = 0.5
LATENCY_LOOK_S, LATENCY_OVER_S = 2.0, 6.0
"""Time between two looks at the live job's latency, and the window within which it is measured."""
STOPPED_S = 20.0
"""Longest time without a turn of the second job; much less than FRAUD_TRANSACTION_TIMEOUT_MS."""
MEASURED = 100_000
"""Transactions from which on a run's speed is kept, for later plans."""
TURN_S = 2.0
"""Time that the second job then runs at least."""


@dataclass(frozen=True)
class Limits:
    """What the live job has to keep while a replay runs."""

    behind: int
    """Transactions by which it may be behind the log."""
    p99_s: float
    """Time from arrival to decision of the slowest hundredth, seconds."""


class LiveJob:
    """The lag and the recent latency of the live job, by its committed offsets and progress records."""

    def __init__(self, live: JobSettings, log: TopicLog) -> None:
        self._live, self._log = live, log
        self._reader = clients.reader(live, live.job_id)
        self._rates, self._looked = RecentRates(LATENCY_OVER_S), -LATENCY_LOOK_S

    @property
    def behind(self) -> int:
        """Transactions by which it is behind the log."""
        return inputs.lag(self._log, self._live)

    def p99_s(self, now: float) -> float:
        """Return the latency of the slowest hundredth, seconds; 0.0 if nothing was decided lately.

        Args:
            now: seconds, on a clock that does not go back.
        """
        if now - self._looked >= LATENCY_LOOK_S:
            self._looked = now
            groups = newest_records(self._live, self._reader).values()
            self._rates.add(now, Totals.of_groups(Totals.from_json(group["totals"]) for group in groups))
        rates = self._rates.rates
        return 0.0 if rates is None else rates.latency_s.get(99, 0.0)

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()


class Yielding:
    """Decides when the second job has to wait for the live one. Pure."""

    def __init__(self, limits: Limits) -> None:
        """Begin with a running job."""
        self._limits, self._since = limits, -TURN_S
        self.waits = False
        """Whether the second job has to wait."""

    def look(self, behind: int, p99_s: float, now: float) -> bool:
        """Update `waits` by the live job's lag and latency, and return whether it changed.

        Args:
            now: seconds, on a clock that does not go back.
        """
        held, limits = now - self._since, self._limits
        if self.waits:
            keeps_up = behind <= limits.behind // 2 and p99_s <= limits.p99_s
            changes = keeps_up or held > STOPPED_S
        else:
            changes = (behind > limits.behind or p99_s > limits.p99_s) and held >= TURN_S
        if changes:
            self.waits, self._since = not self.waits, now
        return changes


class Speed:
    """The speed of the second job since its first decision, without its start. Pure."""

    def __init__(self, remaining: int, now: float) -> None:
        """Begin with the number of transactions that remain, at a time in seconds."""
        self._first, self._since = remaining, now
        self.decided = 0
        """Number of transactions decided."""

    def look(self, remaining: int, now: float) -> float:
        """Return the transactions per second; 0.0 before the first decision."""
        if remaining >= self._first:
            self._since = now
        self.decided = self._first - remaining
        return self.decided / (now - self._since) if self.decided > 0 else 0.0


def command(release: str) -> list[str]:
    """Return the command of a release that runs the job."""
    return [*([release] if release else FRAUD), "job", "run"]


def run(
    live: JobSettings, replay: Replay, say: Say, stop: Event, limits: Limits | None, *, follow: bool
) -> Replay:
    """Run the second job until its range is decided, or `stop` is set; return the changed record.

    Args:
        limits: the second job waits while the live one does not keep them. None: it does not yield.
        follow: whether it goes on after the end of the range, with what arrives, until `stop` is set.

    Raises:
        ReplayError: the second job ended.
    """
    end_leftover(replay)
    settings, log = replay.settings(live), TopicLog(live.bootstrap_servers, live.kafka)
    shown = Shown(replay, inputs.decided(log, settings))
    if not shown.remaining and not follow:
        shown.show(State.DONE)
        return replay.saved(is_done=True, process=None)
    try:
        replay = _followed(live, replay, log, shown, say, stop, limits, follow=follow)
    except FraudError as fault:
        shown.show(State.FAILED, str(fault))
        raise
    shown.show(State.DONE if replay.is_done else State.STOPPED)
    return replay


def _followed(
    live: JobSettings, replay: Replay, log: TopicLog, shown: "Shown", say: Say, stop: Event,
    limits: Limits | None, *, follow: bool,
) -> Replay:  # fmt: skip
    settings, log_file = replay.settings(live), replay.file.parent / "job.log"
    yielding = None if limits is None else Yielding(limits)
    speed = Speed(shown.remaining, time.monotonic())
    with (
        closing(LiveJob(live, log)) as other,
        Child("the replay's job", command(replay.release), log_file, settings.variables()) as job,
    ):
        process = psutil.Process(job.pid)
        if yielding is not None:
            # its children inherit it; a thread of nice level 19 would not give way at once
            os.sched_setscheduler(job.pid, os.SCHED_IDLE, os.sched_param(0))
        replay = replay.saved(process=(job.pid, process.create_time()))
        shown.show(State.RUNNING)
        try:
            while not stop.wait(LOOK_S) and (shown.remaining > 0 or follow):
                if not job.runs:
                    raise _ended(job)
                shown.decided = inputs.decided(log, settings)
                shown.per_s = speed.look(shown.remaining, time.monotonic())
                now = time.monotonic()
                if yielding is not None and yielding.look(other.behind, other.p99_s(now), now):
                    _signal_all(job, signal.SIGSTOP if yielding.waits else signal.SIGCONT)
                waits = yielding is not None and yielding.waits
                say(shown.show(State.WAITING if waits else State.RUNNING))
        finally:
            _signal_all(job, signal.SIGCONT)
        code = job.terminate()
    if code not in (0, -signal.SIGTERM):  # the latter if it was stopped before it could listen
        raise _ended(job)
    kept = shown.per_s if speed.decided >= MEASURED else replay.rate
    return replay.saved(is_done=shown.remaining == 0, rate=round(kept, 1), process=None)


class Shown:
    """The progress of a replay, as its terminal and the sidecar show it."""

    def __init__(self, replay: Replay, decided: Mapping[int, int]) -> None:
        self._replay = replay
        self.decided = decided
        """Offset up to which each partition is decided."""
        self.per_s = 0.0
        """Transactions per second."""

    @property
    def remaining(self) -> int:
        """Number of offsets to the end of the range."""
        return inputs.remaining(self.decided, self._replay.range)

    def show(self, state: State, error: str = "") -> str:
        """Replace the file that the sidecar reads; return the line for the terminal."""
        replay, now_ms = self._replay, int(time.time() * 1000)
        positions = {str(part): offset for part, offset in self.decided.items()}
        progress = Progress(
            replay.name, state, now_ms, self.remaining, round(self.per_s, 1), positions, replay.ends, error
        )
        replace_json(replay.file.parent / FILE, asdict(progress))
        return text_of(progress)


def text_of(progress: Progress) -> str:
    """Return the progress as text."""
    left = progress.seconds_left
    return (
        f"{progress.remaining:,} transactions to go, {progress.per_s:,.0f}/s"
        + (f", about {left:,.0f} s" if left is not None else "")
        + (", waits for the live job" if progress.state is State.WAITING else "")
    )


def end_leftover(replay: Replay) -> None:
    """End the second job of an earlier run that was killed without it."""
    if (server := replay.server) is not None:
        processes.send(server, signal.SIGCONT)
        processes.stop(server)


def _ended(job: Child) -> ReplayError:
    errors = [line for line in job.log.splitlines() if line.startswith("error: ")]
    reason = errors[-1].removeprefix("error: ") if errors else f"see {job.log_file}"
    return ReplayError(f"the replay's job ended: {reason}")


def _signal_all(job: Child, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        for process in (psutil.Process(job.pid), *job.descendants()):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

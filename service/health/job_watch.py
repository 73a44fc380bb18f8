"""Everything that the sidecar knows of the job at one moment."""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from service.health.diagnosis import Diagnosis, diagnose
from service.health.groups import Groups, end_offsets
from service.health.lag import Lag
from service.health.lag_watch import LagWatch
from service.health.monitor import Assessment, Monitor
from service.health.readiness import Check, checks
from service.progress_reader import ProgressReader
from service.settings import ServiceSettings
from streaming_job.progress.totals import Totals


@dataclass(frozen=True)
class View:
    """The job as the sidecar sees it."""

    now_s: float
    """Seconds since 1970-01-01 UTC."""
    checks: tuple[Check, ...]
    groups: Groups
    lag: Lag | None
    """The broker's last answer; None before the first."""
    assessment: Assessment | None
    """What the looks so far come to; None before the first."""
    diagnosis: Diagnosis
    totals: Totals
    broker_is_up: bool
    progress_is_complete: bool
    unreadable: int
    """Records of the progress topic that were no progress."""


class Onsets:
    """Remembers when each of several things was first met, as long as it is met every time."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()

    def of(self, met: Collection[str], now_s: float) -> dict[str, float]:
        """Since when each has been met; what is not met any more is forgotten."""
        with self._lock:
            self._since = {name: self._since.get(name, now_s) for name in met}
            return self._since


class JobWatch:
    """Follows progress and offsets of one job; its threads live from `start` to `stop`."""

    def __init__(self, settings: ServiceSettings, clock: Callable[[], float]) -> None:
        """Know nothing yet.

        Args:
            settings: what to watch.
            clock: seconds since 1970-01-01 UTC.
        """
        self.settings = settings
        self.progress = ProgressReader(settings)
        self._clock = clock
        self._monitor = Monitor(settings)
        self._onsets = Onsets()
        self._lag_watch = LagWatch(
            settings, lambda: end_offsets(self.progress.groups), clock, after_look=self._see
        )

    def start(self) -> None:
        """Begin to watch."""
        self.progress.start()
        self._lag_watch.start()

    def stop(self) -> None:
        """End the threads."""
        self._lag_watch.stop()
        self.progress.stop()

    def checks(self) -> tuple[Check, ...]:
        """The rules of readiness as they stand."""
        settings = self.settings
        return checks(
            now_s=self._clock(),
            broker_fault=self._lag_watch.fault,
            waiting_for=self.progress.waiting_for,
            lag=self._lag_watch.lag,
            groups=self.progress.groups,
            transactions_topic=settings.topics.transactions,
            max_age_s=settings.max_progress_age_s,
            max_silence_s=settings.max_silence_s,
        )

    def view(self) -> View:
        """Everything at once."""
        now, groups, lag = self._clock(), self.progress.groups, self._lag_watch.lag
        assessment, found = self._monitor.assessment, self.checks()
        return View(
            now_s=now,
            checks=found,
            groups=groups,
            lag=lag,
            assessment=assessment,
            diagnosis=self._with_onsets(diagnose(now, found, assessment, lag, groups), now),
            totals=self.progress.totals,
            broker_is_up=self._lag_watch.fault is None,
            progress_is_complete=self.progress.waiting_for is None,
            unreadable=self.progress.unreadable,
        )

    def _see(self, lag: Lag) -> None:
        # what is not known yet would look like a job that does nothing
        if self.progress.waiting_for is None:
            self._monitor.see(lag, self.progress.groups, self.progress.totals)
        self.view()  # so that reasons are met when they begin, not when somebody asks

    def _with_onsets(self, diagnosis: Diagnosis, now_s: float) -> Diagnosis:
        since = self._onsets.of({reason.code for reason in diagnosis.reasons}, now_s)
        reasons = tuple(
            replace(reason, since_s=since[reason.code]) if reason.since_s is None else reason
            for reason in diagnosis.reasons
        )
        return replace(diagnosis, reasons=reasons)

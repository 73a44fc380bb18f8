"""The sidecar's view of the job at one moment, and the threads that keep it up to date."""

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
    """Lag of all input partitions, from the brokers' offsets; None before the first answer."""
    assessment: Assessment | None
    """The monitor's newest assessment of the input partitions; None before the first."""
    diagnosis: Diagnosis
    totals: Totals
    broker_is_up: bool
    progress_is_complete: bool
    unreadable: int
    """Number of invalid records on the progress topic."""


class Onsets:
    """The onset of each reason code: the first call of `of` with the code, if no later call lacked it."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()

    def of(self, codes: Collection[str], now_s: float) -> dict[str, float]:
        """Return the onset of each present code, and forget codes that are no longer present."""
        with self._lock:
            self._since = {code: self._since.get(code, now_s) for code in codes}
            return self._since


class JobWatch:
    """Follower of one job's progress and offsets; its threads run from `start` to `stop`."""

    def __init__(self, settings: ServiceSettings, clock: Callable[[], float]) -> None:
        """Prepare the threads without starting them."""
        self.settings = settings
        self.progress = ProgressReader(settings)
        self._clock = clock
        self._monitor = Monitor(settings)
        self._onsets = Onsets()
        self._lag_watch = LagWatch(
            settings, lambda: end_offsets(self.progress.groups), clock, after_look=self._see
        )

    def start(self) -> None:
        """Start the threads."""
        self.progress.start()
        self._lag_watch.start()

    def stop(self) -> None:
        """Stop the threads."""
        self._lag_watch.stop()
        self.progress.stop()

    def checks(self) -> tuple[Check, ...]:
        """Evaluate the readiness checks now."""
        settings = self.settings
        return checks(
            now_s=self._clock(),
            broker_fault=self._lag_watch.fault,
            waiting_for=self._missing,
            lag=self._lag_watch.lag,
            groups=self.progress.groups,
            transactions_topic=settings.topics.transactions,
            max_age_s=settings.max_progress_age_s,
            max_silence_s=settings.max_silence_s,
        )

    def view(self) -> View:
        """Return the job's state now."""
        now, groups, lag = self._clock(), self.progress.groups, self._lag_watch.lag
        assessment, readiness = self._monitor.assessment, self.checks()
        return View(
            now_s=now,
            checks=readiness,
            groups=groups,
            lag=lag,
            assessment=assessment,
            diagnosis=self._with_onsets(diagnose(now, readiness, assessment, lag, groups), now),
            totals=self.progress.totals,
            broker_is_up=self._lag_watch.fault is None,
            progress_is_complete=self._missing is None,
            unreadable=self.progress.unreadable,
        )

    @property
    def _missing(self) -> str | None:
        """Why progress records may be missing, apart from brokers that do not answer at all."""
        return self.progress.waiting_for or (self.progress.trouble if self._lag_watch.fault is None else None)

    def _see(self, lag: Lag) -> None:
        # before progress has been read to its end, the job would look as if it did nothing
        if self.progress.waiting_for is None:
            self._monitor.see(lag, self.progress.groups, self.progress.totals)
        self.view()  # so that the onset of a reason is recorded when it begins, not at the next request

    def _with_onsets(self, diagnosis: Diagnosis, now_s: float) -> Diagnosis:
        since = self._onsets.of({reason.code for reason in diagnosis.reasons}, now_s)
        reasons = tuple(
            replace(reason, since_s=since[reason.code]) if reason.since_s is None else reason
            for reason in diagnosis.reasons
        )
        return replace(diagnosis, reasons=reasons)

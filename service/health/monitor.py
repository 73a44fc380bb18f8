"""History of samples (the state of each input partition at one moment), from which partitions are judged.

A sliding window of samples gives a partition's verdict. Limits are learned from the times between commits and
between heartbeats, the lengths of epochs, the waits for producers' open transactions, and the latencies.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from service.health.codes import OF_PARTITIONS, Verdict
from service.health.groups import Groups
from service.health.lag import Lag
from service.health.limits import LearnedLimit, bounded
from service.health.partition_samples import partition_samples
from service.health.recent import Rates, Recent, RecentCounts, RecentRates
from service.health.verdicts import Limits, PartitionFinding, PartitionSample, evaluate
from service.settings import ServiceSettings
from streaming_job.log.records import PartitionId
from streaming_job.progress.totals import Totals


@dataclass(frozen=True)
class Epoch:
    """The running epoch of a key group, as observed by the sidecar."""

    number: int
    since_s: float
    """Time of its first observed commit; also taken as the time of the previous epoch's checkpoint."""


@dataclass(frozen=True)
class Assessment:
    """Verdicts on the input partitions, with limits, epochs and rates, at the last sample; never mutated."""

    at_s: float
    """Time of the last sample."""
    findings: Mapping[PartitionId, PartitionFinding]
    limits: Limits
    heartbeat_s: float
    """Limit for the age of the profile feed's newest heartbeat."""
    epoch_s: float
    """Limit for the length of an epoch."""
    silence_s: float
    """Limit for the age of a key group's newest progress record."""
    epochs: Mapping[int, Epoch] = field(default_factory=dict)
    """Key group -> its running epoch."""
    rates: Rates | None = None
    recent: Recent | None = None
    """Counts of the last minutes; None before the second sample."""
    restarts: int = 0
    """Number of takeovers by another instance of the job since the sidecar started."""

    @property
    def verdict(self) -> Verdict:
        """The most severe verdict of the partitions; IDLE only if all are idle."""
        verdicts = {finding.verdict for finding in self.findings.values()}
        return max(verdicts, key=lambda verdict: verdict.severity, default=OF_PARTITIONS[0])


EPOCH_FLOOR_S = 30.0
"""Least limit for epochs, which last 20 s unless the job has another setting: some may have ended early."""


class Monitor:
    """Judge of the input partitions: collects every sample and updates the assessment.

    One thread adds samples. `assessment` is replaced as a whole, so other threads read it without a lock.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        floor, ceiling = settings.limit_floor_s, settings.max_progress_age_s
        self._commits = LearnedLimit(floor, ceiling)
        self._held = LearnedLimit(floor, ceiling)
        self._heartbeats = LearnedLimit(floor, settings.limit_ceiling_s)
        self._epoch_lengths = LearnedLimit(max(floor, EPOCH_FLOOR_S), settings.limit_ceiling_s)
        self._windows: dict[PartitionId, deque[PartitionSample]] = {}
        self._rates = RecentRates()
        self._recent = RecentCounts(settings.topics, settings.verdict_window_s)
        self._commit_ids: dict[int, int] = {}
        self._epochs: dict[int, Epoch] = {}
        self._seen_to_begin: set[int] = set()
        """Key groups whose running epoch began after the sidecar started."""
        self._heartbeat_ms: int | None = None
        self._instances: frozenset[str] = frozenset()
        self._restarts = 0
        self.assessment: Assessment | None = None
        """Assessment as of the last sample; None before the first."""

    def see(self, lag: Lag, groups: Groups, totals: Totals) -> None:
        """Add one sample of each input partition, and update the assessment."""
        self._measure(lag, groups)
        self._rates.add(lag.taken_at, totals)
        self._recent.add(lag.taken_at, totals)
        samples = partition_samples(lag, groups, self._settings.topics)
        for key in self._windows.keys() - samples.keys():
            del self._windows[key]
        for key, sample in samples.items():
            window = self._windows.setdefault(key, deque())
            if window and window[-1].held and not sample.held:
                self._held.add(window[-1].at_s - (window[-1].waiting_since_s or window[-1].at_s))
            if window and sample.at_s < window[-1].at_s:
                window.clear()  # the clock was set back: nothing would expire until it is as late again
            window.append(sample)
            while len(window) > 1 and sample.at_s - window[0].at_s > self._settings.verdict_window_s:
                window.popleft()
        self.assessment = self._assess(lag.taken_at)

    def _assess(self, now_s: float) -> Assessment:
        rates = self._rates.rates
        floor, ceiling = self._settings.limit_floor_s, self._settings.max_progress_age_s
        limits = Limits(
            commit_s=self._commits.limit_s,
            latency_s=bounded(rates.latency_s.get(99) if rates else None, floor, ceiling),
            held_s=self._held.limit_s,
            idle_s=self._settings.idle_after_s,
        )
        return Assessment(
            at_s=now_s,
            findings={key: evaluate(list(self._windows[key]), limits) for key in sorted(self._windows)},
            limits=limits,
            heartbeat_s=self._heartbeats.limit_s,
            epoch_s=self._epoch_lengths.limit_s,
            silence_s=self._settings.max_silence_s,
            epochs=dict(self._epochs),
            rates=rates,
            recent=self._recent.recent,
            restarts=self._restarts,
        )

    def _measure(self, lag: Lag, groups: Groups) -> None:
        """Measure times from the changes since the last sample."""
        # a job that has taken over may have fewer key groups
        self._commit_ids = {group: number for group, number in self._commit_ids.items() if group in groups}
        self._epochs = {group: epoch for group, epoch in self._epochs.items() if group in groups}
        self._seen_to_begin &= groups.keys()
        for group, record in groups.items():
            if record["commit_id"] != self._commit_ids.get(group):
                self._commit_ids[group] = record["commit_id"]
                self._commits.add((record["written_at"] - record["started_at"]) / 1e3)
            self._see_epoch(group, record["epoch"], record["written_at"] / 1e3)
        heartbeat = lag.feed_ms.get("heartbeat")
        if heartbeat is not None:
            if self._heartbeat_ms is not None and heartbeat > self._heartbeat_ms:
                self._heartbeats.add((heartbeat - self._heartbeat_ms) / 1e3)
            self._heartbeat_ms = heartbeat
        if self._instances:
            self._restarts += len(lag.instances - self._instances)
        self._instances = lag.instances or self._instances

    def _see_epoch(self, group: int, number: int, written_s: float) -> None:
        current = self._epochs.get(group)
        if current is not None and current.number == number:
            return
        if current is not None:
            if group in self._seen_to_begin:
                self._epoch_lengths.add(written_s - current.since_s)
            self._seen_to_begin.add(group)
        self._epochs[group] = Epoch(number, written_s)

"""The sidecar's memory of its looks: windows for the verdicts, measured times for their limits."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from service.health.codes import OF_PARTITIONS, Verdict
from service.health.groups import Groups
from service.health.lag import Lag
from service.health.limits import Learned, bounded
from service.health.looks import looks_at
from service.health.rates import Rates, Recent
from service.health.verdicts import Finding, Limits, Look, evaluate
from service.health.waiting import Place
from service.settings import ServiceSettings
from streaming_job.progress.totals import Totals


@dataclass(frozen=True)
class Epoch:
    """The epoch of a key group, as far as the sidecar has seen it."""

    number: int
    since_s: float
    """When its first commit was seen; the checkpoint of the epoch before is as old."""


@dataclass(frozen=True)
class Assessment:
    """What the looks so far come to; never altered."""

    at_s: float
    """Of the last look."""
    findings: Mapping[Place, Finding]
    limits: Limits
    heartbeat_s: float
    """How old the newest heartbeat of the profiles' feed may be."""
    epoch_s: float
    """How long an epoch may last."""
    epochs: Mapping[int, Epoch] = field(default_factory=dict)
    """By key group."""
    rates: Rates | None = None
    restarts: int = 0
    """Instances of the job that took over from another since the sidecar started."""

    @property
    def verdict(self) -> Verdict:
        """The most severe of the partitions; IDLE only if all are."""
        found = {finding.verdict for finding in self.findings.values()}
        return max(found, key=lambda verdict: verdict.severity, default=OF_PARTITIONS[0])


class Monitor:
    """Takes in every look, and judges.

    One thread takes looks in; `assessment` is replaced as a whole, so others read it without a lock.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        floor, ceiling = settings.limit_floor_s, settings.max_progress_age_s
        self._commits = Learned(floor, ceiling)
        self._held = Learned(floor, ceiling)
        self._heartbeats = Learned(floor, settings.limit_ceiling_s)
        self._epochs_last = Learned(floor, settings.limit_ceiling_s)
        self._windows: dict[Place, deque[Look]] = {}
        self._recent = Recent()
        self._commit_ids: dict[int, int] = {}
        self._epochs: dict[int, Epoch] = {}
        self._seen_to_begin: set[int] = set()
        """Key groups of which the running epoch was seen to begin."""
        self._heartbeat_ms: int | None = None
        self._instances: frozenset[str] = frozenset()
        self._restarts = 0
        self._assessment: Assessment | None = None

    @property
    def assessment(self) -> Assessment | None:
        """As of the last look; None before the first."""
        return self._assessment

    def see(self, lag: Lag, groups: Groups, totals: Totals) -> None:
        """Take in a look.

        Args:
            lag: the broker's answer.
            groups: newest progress record of each key group.
            totals: sums over them.
        """
        self._measure(lag, groups)
        self._recent.add(lag.taken_at, totals)
        looks = looks_at(lag, groups, self._settings.topics.transactions)
        for place in self._windows.keys() - looks.keys():
            del self._windows[place]
        for place, look in looks.items():
            window = self._windows.setdefault(place, deque())
            if window and window[-1].held and not look.held:
                self._held.add(window[-1].at_s - (window[-1].waiting_since_s or window[-1].at_s))
            window.append(look)
            while len(window) > 1 and look.at_s - window[0].at_s > self._settings.verdict_window_s:
                window.popleft()
        self._assessment = self._assess(lag.taken_at)

    def _assess(self, now_s: float) -> Assessment:
        rates = self._recent.rates
        floor, ceiling = self._settings.limit_floor_s, self._settings.max_progress_age_s
        limits = Limits(
            commit_s=self._commits.limit_s,
            latency_s=bounded(rates.latency_s.get(99) if rates else None, floor, ceiling),
            held_s=self._held.limit_s,
            idle_s=self._settings.idle_after_s,
        )
        return Assessment(
            at_s=now_s,
            findings={place: evaluate(list(self._windows[place]), limits) for place in sorted(self._windows)},
            limits=limits,
            heartbeat_s=self._heartbeats.limit_s,
            epoch_s=self._epochs_last.limit_s,
            epochs=dict(self._epochs),
            rates=rates,
            restarts=self._restarts,
        )

    def _measure(self, lag: Lag, groups: Groups) -> None:
        """Learn from what has changed since the last look."""
        for group, record in groups.items():
            if record["commit_id"] != self._commit_ids.get(group):
                self._commit_ids[group] = record["commit_id"]
                self._commits.add((record["written_at"] - record["started_at"]) / 1e3)
            self._see_epoch(group, record["epoch"], record["written_at"] / 1e3)
        beat = lag.feed_ms.get("heartbeat")
        if beat is not None:
            if self._heartbeat_ms is not None and beat > self._heartbeat_ms:
                self._heartbeats.add((beat - self._heartbeat_ms) / 1e3)
            self._heartbeat_ms = beat
        if self._instances:
            self._restarts += len(lag.instances - self._instances)
        self._instances = lag.instances or self._instances

    def _see_epoch(self, group: int, number: int, written_s: float) -> None:
        known = self._epochs.get(group)
        if known is not None and known.number == number:
            return
        if known is not None:
            if group in self._seen_to_begin:
                self._epochs_last.add(written_s - known.since_s)
            self._seen_to_begin.add(group)
        self._epochs[group] = Epoch(number, written_s)

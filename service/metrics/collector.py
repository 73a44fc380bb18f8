"""Collector of the job's metrics, computed anew at every scrape: it keeps no counts and no earlier values."""

from collections.abc import Callable, Iterable

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from service.health.event_time import event_times
from service.health.job_watch import JobWatch, View
from service.metrics.families import sample
from service.metrics.of_groups import of_groups
from service.metrics.of_health import of_assessment, of_diagnosis
from service.metrics.of_inputs import of_event_time, of_lag
from service.metrics.of_quality import of_features
from service.metrics.of_rollouts import of_rollouts
from service.metrics.of_totals import of_totals
from service.settings import ServiceSettings

More = Callable[[], Iterable[Metric]]


class FraudCollector(Collector):
    """Metrics of the job, from the sidecar's view at the moment of the scrape."""

    def __init__(self, job: JobWatch, more: Iterable[More] = ()) -> None:
        """Create the collector.

        Args:
            more: functions that return metrics of other parts, for example the guards.
        """
        self._job = job
        self._more = tuple(more)

    def collect(self) -> Iterable[Metric]:
        """Return all metric families."""
        yield from of_view(self._job.view(), self._job.settings)
        for make in self._more:
            yield from make()


def of_view(view: View, settings: ServiceSettings) -> Iterable[Metric]:
    """Return the metric families of a view of the job."""
    if view.groups or view.progress_is_complete:
        # unread totals are not 0: Prometheus would count all that the job has ever done as growth afterwards
        yield from of_totals(view.totals, settings.topics)
    if view.groups:
        yield from of_groups(view.groups, view.now_s)
        times = event_times(view.groups, view.lag, view.now_s, settings.idle_after_s)
        yield from of_event_time(times, view.now_s)
        yield from of_rollouts(view.groups)
        yield from of_features(view.groups)
    if view.lag is not None:
        yield from of_lag(view.lag, view.now_s)
    if view.assessment is not None:
        yield from of_assessment(view.assessment)
    yield from of_diagnosis(view.diagnosis, view.checks)
    up = float(view.broker_is_up)
    yield sample("fraud_sidecar_broker_up", up)
    complete = float(view.progress_is_complete)
    yield sample("fraud_sidecar_progress_complete", complete)
    yield sample("fraud_sidecar_progress_unreadable", view.unreadable)


def registry_of(job: JobWatch, more: Iterable[More] = ()) -> CollectorRegistry:
    """Create the registry of one sidecar: the job's metrics, those of `more`, and those of this process."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FraudCollector(job, more))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry

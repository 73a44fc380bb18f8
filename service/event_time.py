"""Event time of the inputs as Prometheus metrics."""

from prometheus_client.core import GaugeMetricFamily, Metric

from service.groups import Groups, partitions
from service.lag import Lag

IDLE_AFTER_S = 60.0


def of_event_time(groups: Groups, lag: Lag | None, now_s: float) -> list[Metric]:
    """Where event time stands; a partition that is idle does not hold back the job's watermark."""
    labels = ["topic", "partition"]
    newest = GaugeMetricFamily(
        "fraud_partition_event_time_seconds", "Greatest event time seen", labels=labels
    )
    marks = GaugeMetricFamily(
        "fraud_partition_watermark_seconds",
        "Estimate: nearly all that happened before has arrived",
        labels=labels,
    )
    idle = GaugeMetricFamily(
        "fraud_partition_idle",
        f"1 when nothing waits and nothing came for {IDLE_AFTER_S:.0f} s",
        labels=labels,
    )
    waiting = {(p.topic, p.partition) for p in lag.partitions if p.records or p.held} if lag else set()
    holding: list[float] = []
    for part in partitions(groups):
        place = [part["topic"], str(part["partition"])]
        quiet_s = now_s - (part["active_at"] or 0) / 1e3
        is_idle = quiet_s > IDLE_AFTER_S and (part["topic"], part["partition"]) not in waiting
        idle.add_metric(place, float(is_idle))
        if part["event_time"] is not None:
            newest.add_metric(place, part["event_time"] / 1e3)
        if part["watermark"] is not None:
            marks.add_metric(place, part["watermark"] / 1e3)
            holding += [] if is_idle else [part["watermark"] / 1e3]
    families: list[Metric] = [newest, marks, idle]
    if holding:
        least = "The least of the partitions that are not idle"
        families.append(GaugeMetricFamily("fraud_watermark_seconds", least, value=min(holding)))
    return families

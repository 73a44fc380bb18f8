"""Metrics of the inputs' event time."""

from prometheus_client.core import Metric

from service.health.event_time import PartitionTime, watermark_of
from service.metrics.families import sample, samples


def of_event_time(times: tuple[PartitionTime, ...], now_s: float) -> list[Metric]:
    """Return event times and watermarks; an idle partition does not hold back the job's watermark.

    Args:
        now_s: seconds since 1970-01-01 UTC.
    """
    parts = [([t.topic, str(t.partition)], t) for t in times]
    newest = [(key, t.newest_s) for key, t in parts if t.newest_s is not None]
    marks = [(key, t.watermark_s) for key, t in parts if t.watermark_s is not None]
    families = [
        samples("fraud_partition_event_time_timestamp_seconds", newest),
        samples(
            "fraud_partition_event_time_age_seconds", ((key, max(0.0, now_s - at)) for key, at in newest)
        ),
        samples("fraud_partition_watermark_timestamp_seconds", marks),
        samples("fraud_partition_watermark_age_seconds", ((key, max(0.0, now_s - at)) for key, at in marks)),
        samples("fraud_partition_idle", ((key, float(t.is_idle)) for key, t in parts)),
    ]
    watermark = watermark_of(times)
    if watermark is not None:
        families.append(sample("fraud_watermark_timestamp_seconds", watermark))
        families.append(sample("fraud_watermark_age_seconds", max(0.0, now_s - watermark)))
    return families

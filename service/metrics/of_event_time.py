"""Metrics of the inputs' event time."""

from prometheus_client.core import Metric

from service.health.event_time import PartitionTime, watermark_of
from service.metrics.families import gauge, gauges
from service.metrics.of_lag import PLACE


def of_event_time(times: tuple[PartitionTime, ...], now_s: float) -> list[Metric]:
    """Return event times and watermarks; an idle partition does not hold back the job's watermark.

    Args:
        now_s: seconds since 1970-01-01 UTC.
    """
    parts = [([t.topic, str(t.partition)], t) for t in times]
    newest = [(key, t.newest_s) for key, t in parts if t.newest_s is not None]
    marks = [(key, t.watermark_s) for key, t in parts if t.watermark_s is not None]
    families = [
        gauges("fraud_partition_event_time_timestamp_seconds", "Greatest event time seen", PLACE, newest),
        gauges(
            "fraud_partition_event_time_age_seconds",
            "Time since the greatest event time seen",
            PLACE,
            ((key, max(0.0, now_s - at)) for key, at in newest),
        ),
        gauges(
            "fraud_partition_watermark_timestamp_seconds",
            "Estimated event time before which nearly all events have arrived",
            PLACE,
            marks,
        ),
        gauges(
            "fraud_partition_watermark_age_seconds",
            "Time since the watermark",
            PLACE,
            ((key, max(0.0, now_s - at)) for key, at in marks),
        ),
        gauges(
            "fraud_partition_idle",
            "1 when nothing waits and nothing came for a while",
            PLACE,
            ((key, float(t.is_idle)) for key, t in parts),
        ),
    ]
    watermark = watermark_of(times)
    if watermark is not None:
        least = "least watermark of the partitions that are not idle"
        families.append(gauge("fraud_watermark_timestamp_seconds", f"The {least}", watermark))
        families.append(
            gauge("fraud_watermark_age_seconds", f"Time since the {least}", max(0.0, now_s - watermark))
        )
    return families

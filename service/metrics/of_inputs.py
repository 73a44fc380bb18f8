"""Metrics of the inputs: the job's lag behind them, and their event time."""

from prometheus_client.core import Metric

from service.health.event_time import PartitionTime, watermark_of
from service.health.lag import Lag
from service.metrics.families import sample, samples


def of_lag(lag: Lag, now_s: float) -> list[Metric]:
    """Return metrics of the lag, and of the time and age of the profile feed's newest records."""
    parts = [([p.topic, str(p.partition)], p) for p in lag.partitions]
    return [
        sample("fraud_lag_records", lag.records),
        sample("fraud_held_records", lag.held),
        sample("fraud_lost_records", lag.lost),
        sample("fraud_lag_seconds", lag.seconds(now_s)),
        samples("fraud_partition_lag_records", ((key, p.records) for key, p in parts)),
        samples("fraud_partition_held_records", ((key, p.held) for key, p in parts)),
        samples("fraud_partition_lost_records", ((key, p.lost) for key, p in parts)),
        samples("fraud_partition_lag_seconds", ((key, p.seconds(now_s)) for key, p in parts)),
        samples("fraud_partition_end_offset", ((key, p.end) for key, p in parts)),
        samples(
            "fraud_partition_committed_offset",
            ((key, p.committed) for key, p in parts if p.committed is not None),
        ),
        samples(
            "fraud_profile_feed_timestamp_seconds",
            (([signal], at / 1e3) for signal, at in lag.feed_ms.items()),
        ),
        samples(
            "fraud_profile_feed_age_seconds",
            (([signal], max(0.0, now_s - at / 1e3)) for signal, at in lag.feed_ms.items()),
        ),
    ]


def of_event_time(times: tuple[PartitionTime, ...], now_s: float) -> list[Metric]:
    """Return event times and watermarks; an idle partition does not hold back the job's watermark."""
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

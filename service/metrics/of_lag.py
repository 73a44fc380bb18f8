"""Metrics of the job's lag behind its inputs."""

from prometheus_client.core import Metric

from service.health.lag import Lag
from service.metrics.families import gauge, gauges

PLACE = ["topic", "partition"]


def of_lag(lag: Lag, now_s: float) -> list[Metric]:
    """Return metrics of the lag, and of the time and age of the profile feed's newest records.

    Args:
        now_s: seconds since 1970-01-01 UTC.
    """
    parts = [([p.topic, str(p.partition)], p) for p in lag.partitions]
    return [
        gauge("fraud_lag_records", "Records that could have been processed and are not", lag.records),
        gauge("fraud_held_records", "Records that wait for a producer's transaction to end", lag.held),
        gauge("fraud_lost_records", "Offsets that the job has read and the log no longer has", lag.lost),
        gauge("fraud_lag_seconds", "How long the oldest record not yet processed waits", lag.seconds(now_s)),
        gauges(
            "fraud_partition_lag_records",
            "Records that could have been processed and are not",
            PLACE,
            ((key, p.records) for key, p in parts),
        ),
        gauges(
            "fraud_partition_held_records",
            "Records that wait for a producer's transaction to end",
            PLACE,
            ((key, p.held) for key, p in parts),
        ),
        gauges(
            "fraud_partition_lost_records",
            "Offsets that the job has read and the log no longer has",
            PLACE,
            ((key, p.lost) for key, p in parts),
        ),
        gauges(
            "fraud_partition_lag_seconds",
            "How long the oldest record not yet processed waits",
            PLACE,
            ((key, p.seconds(now_s)) for key, p in parts),
        ),
        gauges(
            "fraud_partition_end_offset",
            "Offset that the next record will get",
            PLACE,
            ((key, p.end) for key, p in parts),
        ),
        gauges(
            "fraud_partition_committed_offset",
            "Offset that the job reads next",
            PLACE,
            ((key, p.committed) for key, p in parts if p.committed is not None),
        ),
        gauges(
            "fraud_profile_feed_timestamp_seconds",
            "Kafka timestamp of the newest profile change, and of Debezium's newest heartbeat",
            ["signal"],
            (([signal], at / 1e3) for signal, at in lag.feed_ms.items()),
        ),
        gauges(
            "fraud_profile_feed_age_seconds",
            "Time since the newest profile change, and since Debezium's newest heartbeat",
            ["signal"],
            (([signal], max(0.0, now_s - at / 1e3)) for signal, at in lag.feed_ms.items()),
        ),
    ]

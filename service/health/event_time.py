"""Event time of the input partitions: watermarks, and which partitions are idle. Pure."""

from dataclasses import dataclass

from service.health.groups import Groups, partitions
from service.health.lag import Lag

IDLE_AFTER_S = 60.0


@dataclass(frozen=True)
class PartitionTime:
    """Event time of one input partition; times are seconds since 1970-01-01 UTC."""

    topic: str
    partition: int
    newest_s: float | None
    """Greatest event time seen."""
    watermark_s: float | None
    """Estimated event time before which nearly all events have arrived."""
    is_idle: bool
    """Whether no records wait and none have come for a while; idle partitions do not hold back the job's
    watermark."""


def event_times(
    groups: Groups, lag: Lag | None, now_s: float, idle_after_s: float = IDLE_AFTER_S
) -> tuple[PartitionTime, ...]:
    """Return the event time of each input partition."""
    waiting = {(p.topic, p.partition) for p in lag.partitions if p.records or p.held} if lag else set()
    return tuple(
        PartitionTime(
            part["topic"],
            part["partition"],
            None if part["event_time"] is None else part["event_time"] / 1e3,
            None if part["watermark"] is None else part["watermark"] / 1e3,
            now_s - (part["active_at"] or 0) / 1e3 > idle_after_s
            and (part["topic"], part["partition"]) not in waiting,
        )
        for part in partitions(groups)
    )


def watermark_of(times: tuple[PartitionTime, ...]) -> float | None:
    """Return the least watermark of the partitions that are not idle; None if they have none."""
    return min((t.watermark_s for t in times if t.watermark_s is not None and not t.is_idle), default=None)

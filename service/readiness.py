"""When the sidecar may be believed and the job is keeping up."""

from collections.abc import Mapping
from typing import Any

from service.lag import Lag


def reasons_against(
    *,
    now_s: float,
    broker_fault: str | None,
    waiting_for: str | None,
    lag: Lag | None,
    last: Mapping[str, Any] | None,
    max_age_s: float,
) -> list[str]:
    """Why not ready; empty when ready.

    Ready means: the broker answers, progress has been read to its end, and the job has either committed a
    batch within `max_age_s` or has nothing to do.

    Args:
        now_s: seconds since 1970-01-01 UTC.
        broker_fault: of the last question about offsets; None when it was answered.
        waiting_for: why the totals are not complete; None when they are.
        lag: the last answer; None before the first.
        last: newest progress record; None before the first.
        max_age_s: allowed age of that record while the job has lag.
    """
    reasons = [reason for reason in (broker_fault, waiting_for) if reason]
    if lag is not None:
        reasons += [f"topic {topic} does not exist" for topic in lag.missing]
    if reasons or lag is None or lag.records == 0:
        return reasons
    if last is None:
        return [f"the job has not committed a batch yet and {lag.records} records wait"]
    age = now_s - last["written_at"] / 1e3
    if age > max_age_s:
        return [f"the last batch was committed {age:.0f} s ago and {lag.records} records wait"]
    return []

"""Readiness rules: the sidecar's metrics can be believed, and every key group keeps up."""

from service.groups import Groups, key_groups
from service.lag import Lag


def reasons_against(
    *,
    now_s: float,
    broker_fault: str | None,
    waiting_for: str | None,
    lag: Lag | None,
    groups: Groups,
    transactions_topic: str,
    max_age_s: float,
    max_silence_s: float,
) -> list[str]:
    """Why not ready; empty when ready.

    Ready means: the broker answers, progress has been read to its end, every key group has written a progress
    record lately, none leaves transactions waiting without taking any, and no producer's transaction has kept
    records of an input from the job for long.

    Args:
        now_s: seconds since 1970-01-01 UTC.
        broker_fault: of the last question about offsets; None when it was answered.
        waiting_for: why the totals are not complete; None when they are.
        lag: the last answer; None before the first.
        groups: newest progress record of each group.
        transactions_topic: name.
        max_age_s: how long transactions may wait while their group takes none, and records for the end of a
            producer's transaction.
        max_silence_s: allowed age of a group's newest record, for it writes one even when it is idle.
    """
    reasons = [reason for reason in (broker_fault, waiting_for) if reason]
    if lag is not None:
        reasons += [f"topic {topic} does not exist" for topic in lag.missing]
    if reasons or lag is None:
        return reasons
    if not groups:
        return [f"the job has not written progress yet; {lag.records} records wait"]
    reasons += [
        f"{p.topic}-{p.partition}: {p.held} records have been waiting for {p.seconds(now_s):.0f} s for a "
        "producer to end its transaction"
        for p in lag.partitions
        if p.held and not p.records and p.seconds(now_s) > max_age_s
    ]
    for group in range(key_groups(groups)):
        record = groups.get(group)
        if record is None:
            reasons.append(f"key group {group} has not written progress yet")
            continue
        silent_s = now_s - record["written_at"] / 1e3
        if silent_s > max_silence_s:
            reasons.append(f"key group {group} has written no progress for {silent_s:.0f} s")
        mine = {
            part["partition"]: part for part in record["partitions"] if part["topic"] == transactions_topic
        }
        waiting = [
            p for p in lag.partitions if p.topic == transactions_topic and p.partition in mine and p.records
        ]
        taken_s = max((part["active_at"] or 0 for part in mine.values()), default=0) / 1e3
        # after an hour in which nothing came the newest transaction is old, and nobody is late
        stalled_s = min(now_s - taken_s, max((p.seconds(now_s) for p in waiting), default=0.0))
        if record["table_lag"]:
            left = ", ".join(f"{number} records of {topic}" for topic, number in record["table_lag"].items())
            reasons.append(f"key group {group} is loading its tables: {left} are left")
        elif stalled_s > max_age_s:
            count = sum(p.records for p in waiting)
            reasons.append(
                f"key group {group} has taken no transactions for {stalled_s:.0f} s and {count} wait"
            )
    return reasons

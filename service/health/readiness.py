"""Readiness checks: the sidecar's metrics are complete and current, and every key group keeps up. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.health.groups import Groups, key_groups
from service.health.lag import Lag


@dataclass(frozen=True)
class Check:
    """Result of one readiness check."""

    name: str
    code: str
    """Reason code of a failure, in the registry of codes."""
    reasons: tuple[str, ...] = ()
    """Causes of a failure, for people."""
    is_open: bool = False
    """Whether the check was not made, because an earlier check failed."""

    @property
    def is_ok(self) -> bool:
        """Whether the check was made and passed."""
        return not self.reasons and not self.is_open

    def to_json(self) -> dict[str, Any]:
        """Return the check as `/readyz?verbose` shows it."""
        return {
            "name": self.name,
            "ok": None if self.is_open else self.is_ok,
            "code": self.code,
            "detail": "; ".join(self.reasons) or ("not checked" if self.is_open else ""),
        }


NAMES = {
    "broker": "broker_unreachable",
    "progress": "progress_incomplete",
    "topics": "topic_missing",
    "job": "no_progress",
    "producers": "open_transaction",
    "groups": "group_missing",
    "group_progress": "group_silent",
    "tables": "loading_tables",
    "transactions": "group_stalled",
}
"""Checks in their order: name -> code."""


def checks(
    *,
    now_s: float,
    broker_fault: str | None,
    waiting_for: str | None,
    lag: Lag | None,
    groups: Groups,
    transactions_topic: str,
    max_age_s: float,
    max_silence_s: float,
) -> tuple[Check, ...]:
    """Make every check, in the order of NAMES; the sidecar is ready if all pass.

    The conditions: the broker answers; progress has been read to its end; the input topics exist; every key
    group has written a progress record lately and has loaded its tables; no key group leaves transactions
    waiting without deciding any; in no partition has a producer's open transaction held back all waiting
    records for long.

    Args:
        broker_fault: error of the last query of offsets; None if it was answered.
        waiting_for: why progress records may be missing; None if they have been read to their end.
        max_age_s: longest time that transactions may wait for a group that decides none, and that records may
            wait for a producer to end its transaction.
        max_silence_s: greatest age of a group's newest record; an idle group writes records, too.
    """
    broken: dict[str, list[str]] = {name: [] for name in NAMES}
    broken["broker"] += [broker_fault] if broker_fault else []
    broken["progress"] += [waiting_for] if waiting_for else []
    if lag is not None:
        broken["topics"] += [f"topic {topic} does not exist" for topic in lag.missing]
    if any(broken.values()) or lag is None:
        return _checks(broken, evaluated=2 if lag is None else 3)
    if not groups:
        broken["job"].append(f"the job has not written progress yet; {lag.records} records wait")
        return _checks(broken, evaluated=4)
    broken["producers"] += [
        f"{p.topic}-{p.partition}: {p.held} records have been waiting for {p.seconds(now_s):.0f} s for a "
        "producer to end its transaction"
        for p in lag.partitions
        if p.held and not p.records and p.seconds(now_s) > max_age_s
    ]
    # group 0 says where the transactions are
    topic = groups.get(0, {}).get("layout", {}).get("topic", transactions_topic)
    if topic != transactions_topic:
        broken["topics"].append(
            f"the job decides {topic}, this sidecar watches {transactions_topic}: correct "
            "FRAUD_TOPICS__TRANSACTIONS"
        )
    for group in range(key_groups(groups)):
        record = groups.get(group)
        if record is None:
            broken["groups"].append(f"key group {group} has not written progress yet")
            continue
        silent_s = now_s - record["written_at"] / 1e3
        if silent_s > max_silence_s:
            broken["group_progress"].append(f"key group {group} has written no progress for {silent_s:.0f} s")
        if record["table_lag"]:
            left = ", ".join(f"{number} records of {topic}" for topic, number in record["table_lag"].items())
            broken["tables"].append(f"key group {group} is loading its tables: {left} are left")
            continue
        stalled_s, count = _stalled(record, lag, transactions_topic, now_s)
        if stalled_s > max_age_s:
            broken["transactions"].append(
                f"key group {group} has taken no transactions for {stalled_s:.0f} s and {count} wait"
            )
    return _checks(broken, evaluated=len(NAMES))


def reasons_of(results: tuple[Check, ...]) -> list[str]:
    """Return why the sidecar is not ready; empty if it is."""
    return [reason for check in results for reason in check.reasons]


def _checks(broken: Mapping[str, list[str]], evaluated: int) -> tuple[Check, ...]:
    return tuple(
        Check(name, code, tuple(broken[name]), is_open=number >= evaluated)
        for number, (name, code) in enumerate(NAMES.items())
    )


def _stalled(record: Mapping[str, Any], lag: Lag, transactions_topic: str, now_s: float) -> tuple[float, int]:
    """Return for how long a group has left transactions waiting without deciding any, and how many wait."""
    mine = {part["partition"]: part for part in record["partitions"] if part["topic"] == transactions_topic}
    waiting = [
        p for p in lag.partitions if p.topic == transactions_topic and p.partition in mine and p.records
    ]
    active_s = max((part["active_at"] or 0 for part in mine.values()), default=0) / 1e3
    # the lesser of two times: after an hour without transactions active_s is old, but the group is not late
    stalled_s = min(now_s - active_s, max((p.seconds(now_s) for p in waiting), default=0.0))
    return stalled_s, sum(p.records for p in waiting)

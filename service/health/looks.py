"""Looks at the input partitions: what the broker answered, and what progress tells of their readers. Pure."""

from service.health.groups import Groups, key_groups, partitions
from service.health.lag import Lag
from service.health.verdicts import Look
from service.health.waiting import Place


def looks_at(lag: Lag, groups: Groups, transactions_topic: str) -> dict[Place, Look]:
    """One look at each input partition.

    A partition of transactions is read by one key group, one of a table by all of them.

    Args:
        lag: the broker's answer.
        groups: newest progress record of each key group.
        transactions_topic: name.
    """
    readers: dict[Place, list[int]] = {}
    for group, record in groups.items():
        for entry in record["partitions"]:
            readers.setdefault((entry["topic"], entry["partition"]), []).append(group)
    active = {(entry["topic"], entry["partition"]): entry["active_at"] for entry in partitions(groups)}
    are_all_there = 0 < key_groups(groups) == len(groups)
    looks = {}
    for p in lag.partitions:
        place = (p.topic, p.partition)
        mine = readers.get(place, [])
        told = bool(mine) and (p.topic == transactions_topic or are_all_there)
        commits = [groups[group]["written_at"] for group in mine] if told else []
        active_ms = active.get(place) if told else None
        looks[place] = Look(
            at_s=lag.taken_at,
            position=p.committed if told or p.topic == transactions_topic else None,
            lag=p.records,
            held=p.held,
            waiting_since_s=None if p.waiting_since_ms is None else p.waiting_since_ms / 1e3,
            committed_at_s=min(commits) / 1e3 if commits else None,
            active_at_s=None if active_ms is None else active_ms / 1e3,
            loading=any(any(groups[group]["table_lag"].values()) for group in mine),
        )
    return looks

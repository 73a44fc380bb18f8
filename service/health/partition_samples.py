"""States of the input partitions at one moment, from broker offsets and key groups' progress. Pure."""

from service.health.groups import Groups, key_groups, partitions
from service.health.lag import Lag
from service.health.verdicts import PartitionSample
from streaming_job.contracts.topics import Topics
from streaming_job.log.records import PartitionId


def partition_samples(lag: Lag, groups: Groups, topics: Topics) -> dict[PartitionId, PartitionSample]:
    """Build one sample of each input partition.

    One key group reads a partition of transactions; all key groups read a partition of a table.
    """
    readers: dict[PartitionId, list[int]] = {}
    for group, record in groups.items():
        for entry in record["partitions"]:
            readers.setdefault((entry["topic"], entry["partition"]), []).append(group)
    active = {(entry["topic"], entry["partition"]): entry["active_at"] for entry in partitions(groups)}
    is_complete = 0 < key_groups(groups) == len(groups)
    waiting = [p for p in lag.partitions if p.topic == topics.transactions and (p.records or p.held)]
    oldest_ms = min((p.waiting_since_ms or 0 for p in waiting), default=None)
    samples = {}
    for p in lag.partitions:
        key = (p.topic, p.partition)
        own_readers = readers.get(key, [])
        is_known = bool(own_readers) and (p.topic == topics.transactions or is_complete)
        commits = [groups[group]["written_at"] for group in own_readers] if is_known else []
        active_ms = active.get(key) if is_known else None
        samples[key] = PartitionSample(
            at_s=lag.taken_at,
            position=p.committed if is_known or p.topic == topics.transactions else None,
            lag=p.records,
            held=p.held,
            lost=p.lost,
            waiting_since_s=None if p.waiting_since_ms is None else p.waiting_since_ms / 1e3,
            committed_at_s=min(commits) / 1e3 if commits else None,
            active_at_s=None if active_ms is None else active_ms / 1e3,
            loading=any(any(groups[group]["table_lag"].values()) for group in own_readers),
            behind_transactions=p.topic in (topics.labels, topics.chargebacks)
            and p.records > 0
            and oldest_ms is not None
            and (p.waiting_since_ms is None or oldest_ms <= p.waiting_since_ms),
        )
    return samples

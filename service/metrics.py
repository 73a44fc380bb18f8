"""Totals, lag and readiness as Prometheus metrics."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from service.event_time import of_event_time
from service.groups import Groups, key_groups
from service.lag import Lag
from service.lag_watch import LagWatch
from service.progress_reader import ProgressReader
from streaming_job.progress.totals import Histogram, Totals

COUNTS = {
    "records": "Records read from the input topics",
    "transactions": "Transactions decided",
    "duplicates": "Transactions left out because they had been decided",
    "late": "Transactions decided after one with a later event time of the same card",
    "alerts": "Fraud alerts written",
    "profile_changes": "Profile versions taken over",
    "rollouts": "Rollouts taken over",
    "late_table_changes": "Profile changes that turned up behind a decided transaction",
    "missing_profile": "Transactions decided without a profile of their card",
    "scoring_failures": "Transactions that the model gave no score: the other rules decided alone",
}
"""Of the contract's `counts`: name -> meaning; dead letters are told by reason instead."""

OF_A_GROUP: tuple[tuple[str, str, Callable[[Mapping[str, Any]], float]], ...] = (
    ("commit_id", "Number of the newest Kafka transaction", lambda record: record["commit_id"]),
    ("epoch", "Number of the epoch in which it was committed", lambda record: record["epoch"]),
    ("progress_timestamp_seconds", "When it was committed", lambda record: record["written_at"] / 1e3),
    (
        "commit_interval_seconds",
        "Its commit after the one before",
        lambda record: (record["written_at"] - record["started_at"]) / 1e3,
    ),
    (
        "table_lag_records",
        "Records of the tables to be read before the group decides",
        lambda record: sum(record["table_lag"].values()),
    ),
)
"""Gauges of each key group's newest progress record: name -> meaning, value."""


class FraudCollector(Collector):
    """Makes the metrics anew at every scrape, so nothing is counted twice and nothing goes stale."""

    def __init__(self, progress: ProgressReader, watch: LagWatch, clock: Callable[[], float]) -> None:
        self._progress = progress
        self._watch = watch
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """All metric families."""
        now = self._clock()
        yield from of_totals(self._progress.totals)
        groups, lag = self._progress.groups, self._watch.lag
        if groups:
            yield from of_groups(groups, now)
            yield from of_event_time(groups, lag, now)
        if lag is not None:
            yield from of_lag(lag, now)
        yield _gauge(
            "fraud_sidecar_broker_up",
            "1 when the broker answered last time",
            float(self._watch.fault is None),
        )
        yield _gauge(
            "fraud_sidecar_progress_complete",
            "1 when progress has been read to its end",
            float(self._progress.waiting_for is None),
        )
        yield _counter(
            "fraud_sidecar_progress_unreadable",
            "Records of the progress topic that were no progress",
            self._progress.unreadable,
        )


def of_totals(totals: Totals) -> list[Metric]:
    """What has added up since the job's first Kafka transaction."""
    families: list[Metric] = [_counter("fraud_commits", "Kafka transactions committed", totals.commits)]
    for name, meaning in COUNTS.items():
        families.append(_counter(f"fraud_{name}", meaning, totals.counts[name]))
    families += [
        _counters("fraud_dead_letters", "Dead letters written", "reason", totals.dead_letters),
        _counters("fraud_alert_rules", "Alerts in which the rule fired", "rule", totals.rules),
        _counters(
            "fraud_phase_seconds",
            "Time spent in a phase of the work",
            "phase",
            {phase: ms / 1e3 for phase, ms in totals.phases_ms.items()},
        ),
        _counter(
            "fraud_state_rebuilds", "Local copies of state rebuilt from the checkpoint", totals.rebuilds
        ),
        SummaryMetricFamily(
            "fraud_commit_interval_seconds",
            "Commit of a key group after the one before",
            count_value=totals.commits,
            sum_value=totals.elapsed_ms / 1e3,
        ),
        _histogram(
            "fraud_event_to_commit_seconds",
            "Kafka timestamp of the transactions to the commit of their alerts",
            totals.histograms["latency_ms"],
            1e-3,
        ),
        _histogram(
            "fraud_event_lateness_seconds",
            "Arrival of transactions after their event time",
            totals.histograms["lateness_ms"],
            1e-3,
        ),
        _histogram(
            "fraud_profile_age_seconds",
            "Age of the profiles that transactions were decided with",
            totals.histograms["profile_age_ms"],
            1e-3,
        ),
        _histogram("fraud_score", "Scores of the model", totals.histograms["scores"]),
    ]
    return families


def of_groups(groups: Groups, now_s: float) -> list[Metric]:
    """What the newest progress record of each key group says of the job as it is."""
    state = {
        name: sum(record["state"].get(name, 0) for record in groups.values())
        for name in ("cards", "cards_without_profile", "events", "local_bytes")
    }
    families: list[Metric] = [
        _gauge("fraud_key_groups", "Key groups of the job", key_groups(groups)),
        _gauge("fraud_state_cards", "Cards in the state", state["cards"]),
        _gauge(
            "fraud_state_cards_without_profile",
            "Cards in the state that no profile is known of",
            state["cards_without_profile"],
        ),
        _gauge("fraud_state_events", "Transactions kept in the state", state["events"]),
        _gauge("fraud_state_bytes", "Bytes of the local copies of the state", state["local_bytes"]),
    ]
    for name, meaning, value in OF_A_GROUP:
        values = [([str(group)], value(record)) for group, record in groups.items()]
        families.append(_gauges(f"fraud_group_{name}", meaning, ["key_group"], values))
    ages = [([str(group)], max(0.0, now_s - record["written_at"] / 1e3)) for group, record in groups.items()]
    phases = [
        ([str(group), phase], milliseconds / 1e3)
        for group, record in groups.items()
        for phase, milliseconds in record["phases_ms"].items()
    ]
    families += [
        _gauges(
            "fraud_group_progress_age_seconds", "Time since the newest Kafka transaction", ["key_group"], ages
        ),
        _gauges(
            "fraud_group_phase_seconds",
            "Time spent in a phase for the newest Kafka transaction",
            ["key_group", "phase"],
            phases,
        ),
    ]
    aside = [([str(group)], float(len(record["rollouts_set_aside"]))) for group, record in groups.items()]
    families.append(
        _gauges("fraud_rollouts_set_aside", "Rollouts by which the group cannot decide", ["key_group"], aside)
    )
    jobs = {(str(record["job_id"]), str(record["query_id"])) for record in groups.values()}
    for job_id, query_id in sorted(jobs):
        info = {"job_id": job_id, "query_id": query_id}
        families.append(InfoMetricFamily("fraud_job", "The job and its query", info))
    model = InfoMetricFamily("fraud_model", "The model that scored last", labels=["key_group"])
    rollout = InfoMetricFamily("fraud_rollout", "The rollout that decided last", labels=["key_group"])
    for group, record in groups.items():
        if record["model"]:
            model.add_metric([str(group)], _words(record["model"]))
        if record["rollout_id"]:
            rollout.add_metric([str(group)], {"rollout_id": record["rollout_id"]})
    return [*families, model, rollout]


def of_lag(lag: Lag, now_s: float) -> list[Metric]:
    """How far the job is behind its inputs."""
    labels = ["topic", "partition"]
    records = GaugeMetricFamily(
        "fraud_partition_lag_records", "Records that could have been processed and are not", labels=labels
    )
    held = GaugeMetricFamily(
        "fraud_partition_held_records", "Records that wait for a producer's transaction to end", labels=labels
    )
    seconds = GaugeMetricFamily(
        "fraud_partition_lag_seconds", "How long the oldest record not yet processed waits", labels=labels
    )
    ends = GaugeMetricFamily("fraud_partition_end_offset", "Offset of the next record to come", labels=labels)
    committed = GaugeMetricFamily(
        "fraud_partition_committed_offset", "Offset the job reads next", labels=labels
    )
    for partition in lag.partitions:
        place = [partition.topic, str(partition.partition)]
        records.add_metric(place, partition.records)
        held.add_metric(place, partition.held)
        seconds.add_metric(place, partition.seconds(now_s))
        ends.add_metric(place, partition.end)
        if partition.committed is not None:
            committed.add_metric(place, partition.committed)
    return [
        _gauge("fraud_lag_records", "Records that could have been processed and are not", lag.records),
        _gauge("fraud_held_records", "Records that wait for a producer's transaction to end", lag.held),
        _gauge("fraud_lag_seconds", "How long the oldest record not yet processed waits", lag.seconds(now_s)),
        records,
        held,
        seconds,
        ends,
        committed,
        _gauges(
            "fraud_profile_feed_age_seconds",
            "Time since the newest profile change, and since Debezium's newest heartbeat",
            ["signal"],
            [([signal], max(0.0, now_s - at / 1e3)) for signal, at in lag.feed_ms.items()],
        ),
    ]


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)


def _gauges(name: str, meaning: str, labels: list[str], values: list[tuple[list[str], float]]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _counter(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(name, meaning, value=value)


def _counters(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, meaning, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


def _histogram(name: str, meaning: str, histogram: Histogram, scale: float = 1.0) -> Metric:
    """`scale`: of bounds and sum."""
    family = Metric(name, meaning, "histogram")
    running = 0
    for bound, running in histogram.cumulative():
        told = "+Inf" if bound == math.inf else f"{bound * scale:.12g}"
        family.add_sample(f"{name}_bucket", {"le": told}, running)
    family.add_sample(f"{name}_count", {}, running)
    family.add_sample(f"{name}_sum", {}, histogram.total * scale)
    return family


def _words(model: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(model[name]) for name in ("name", "version", "digest") if name in model}

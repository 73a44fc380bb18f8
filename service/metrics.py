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
from service.lag import Lag, LagWatch
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
    "split_cards": "Transactions of cards that came in two partitions in one batch",
    "scoring_failures": "Transactions that the model gave no score: the other rules decided alone",
}
"""Of the contract's `counts`: name -> meaning; dead letters are told by reason instead."""


class FraudCollector(Collector):
    """Makes the metrics anew at every scrape, so nothing is counted twice and nothing goes stale."""

    def __init__(self, progress: ProgressReader, watch: LagWatch, clock: Callable[[], float]) -> None:
        self._progress = progress
        self._watch = watch
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """All metric families."""
        now = self._clock()
        yield from self._progress.read(of_totals)
        last, lag = self._progress.last, self._watch.lag
        if last is not None:
            yield from of_last(last, now)
            yield from of_event_time(last, lag, now)
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
    """What has added up since the job's first batch."""
    families: list[Metric] = [_counter("fraud_batches", "Micro-batches committed", totals.batches)]
    for name, meaning in COUNTS.items():
        families.append(_counter(f"fraud_{name}", meaning, totals.counts[name]))
    families += [
        _counters("fraud_dead_letters", "Dead letters written", "reason", totals.dead_letters),
        _counters("fraud_alert_rules", "Alerts in which the rule fired", "rule", totals.rules),
        _counters(
            "fraud_phase_seconds",
            "Time spent in a phase of the batches",
            "phase",
            {phase: ms / 1e3 for phase, ms in totals.phases_ms.items()},
        ),
        _counter(
            "fraud_state_rebuilds", "Local copies of state rebuilt from the checkpoint", totals.rebuilds
        ),
        SummaryMetricFamily(
            "fraud_batch_duration_seconds",
            "Start to commit of the micro-batches",
            count_value=totals.batches,
            sum_value=totals.batch_ms / 1e3,
        ),
        _histogram(
            "fraud_event_to_commit_seconds",
            "Kafka timestamp of the transactions to the commit of their batch",
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


def of_last(last: Mapping[str, Any], now_s: float) -> list[Metric]:
    """What the newest progress record says of the job as it is."""
    written = last["written_at"] / 1e3
    state = last["state"]
    families: list[Metric] = [
        _gauge("fraud_last_batch_id", "Id of the newest batch", last["batch_id"]),
        _gauge("fraud_last_progress_timestamp_seconds", "When the newest batch was committed", written),
        _gauge(
            "fraud_progress_age_seconds",
            "Time since the newest batch was committed",
            max(0.0, now_s - written),
        ),
        _gauge(
            "fraud_last_batch_duration_seconds",
            "Start to commit of the newest batch",
            (last["written_at"] - last["started_at"]) / 1e3,
        ),
        _gauge("fraud_state_cards", "Cards in the state", state["cards"]),
        _gauge("fraud_state_events", "Transactions kept in the state", state["events"]),
        _gauge("fraud_state_bytes", "Bytes of the local copies of the state", state["local_bytes"]),
        InfoMetricFamily(
            "fraud_job",
            "The job and its query",
            {"job_id": str(last["job_id"]), "query_id": str(last["query_id"])},
        ),
    ]
    phases = GaugeMetricFamily(
        "fraud_last_batch_phase_seconds", "Phases of the newest batch", labels=["phase"]
    )
    for phase, milliseconds in last["phases_ms"].items():
        phases.add_metric([phase], milliseconds / 1e3)
    families.append(phases)
    if last["model"]:
        families.append(InfoMetricFamily("fraud_model", "The model in force", _words(last["model"])))
    if last["rollout_id"]:
        families.append(
            InfoMetricFamily("fraud_rollout", "The rollout in force", {"rollout_id": last["rollout_id"]})
        )
    return families


def of_lag(lag: Lag, now_s: float) -> list[Metric]:
    """How far the job is behind its inputs."""
    labels = ["topic", "partition"]
    records = GaugeMetricFamily("fraud_partition_lag_records", "Records not yet processed", labels=labels)
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
        seconds.add_metric(place, partition.seconds(now_s))
        ends.add_metric(place, partition.end)
        if partition.committed is not None:
            committed.add_metric(place, partition.committed)
    return [
        _gauge("fraud_lag_records", "Records of all inputs not yet processed", lag.records),
        _gauge("fraud_lag_seconds", "How long the oldest record not yet processed waits", lag.seconds(now_s)),
        records,
        seconds,
        ends,
        committed,
    ]


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)


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

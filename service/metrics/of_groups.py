"""Metrics from the newest progress record of each key group."""

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client.core import InfoMetricFamily, Metric

from service.health.groups import Groups, key_groups
from service.health.rollout_progress import unusable
from service.metrics.families import gauge, gauges

OF_A_GROUP: tuple[tuple[str, str, Callable[[Mapping[str, Any]], float]], ...] = (
    ("commit_id", "Number of the newest Kafka transaction", lambda record: record["commit_id"]),
    ("epoch", "Number of the epoch of the newest commit", lambda record: record["epoch"]),
    ("progress_timestamp_seconds", "Time of the newest commit", lambda record: record["written_at"] / 1e3),
    (
        "commit_interval_seconds",
        "Time between the group's two newest commits",
        lambda record: (record["written_at"] - record["started_at"]) / 1e3,
    ),
    (
        "table_lag_records",
        "Records of the tables to be read before the group decides",
        lambda record: sum(record["table_lag"].values()),
    ),
)
"""Gauges of each key group's newest progress record: name -> meaning, value."""


def of_groups(groups: Groups, now_s: float) -> list[Metric]:
    """Return sizes of the job's state, and each key group's newest commit, model and rollouts.

    Args:
        now_s: seconds since 1970-01-01 UTC.
    """
    families = _sizes(groups)
    for name, meaning, value in OF_A_GROUP:
        values = [([str(group)], value(record)) for group, record in groups.items()]
        families.append(gauges(f"fraud_group_{name}", meaning, ["key_group"], values))
    ages = [([str(group)], max(0.0, now_s - record["written_at"] / 1e3)) for group, record in groups.items()]
    phases = [
        ([str(group), phase], milliseconds / 1e3)
        for group, record in groups.items()
        for phase, milliseconds in record["phases_ms"].items()
    ]
    aside = [([str(group)], float(len(unusable(record)))) for group, record in groups.items()]
    return [
        *families,
        gauges(
            "fraud_group_progress_age_seconds", "Time since the newest Kafka transaction", ["key_group"], ages
        ),
        gauges(
            "fraud_group_phase_seconds",
            "Time spent in a phase of the work between the group's two newest commits",
            ["key_group", "phase"],
            phases,
        ),
        gauges(
            "fraud_rollouts_set_aside",
            "Rollouts that the group cannot use and that are newer than the last one that it uses",
            ["key_group"],
            aside,
        ),
        *_infos(groups),
    ]


def _sizes(groups: Groups) -> list[Metric]:
    state = {
        name: sum(record["state"].get(name, 0) for record in groups.values())
        for name in ("cards", "cards_without_profile", "events", "local_bytes")
    }
    return [
        gauge("fraud_key_groups", "Key groups of the job", key_groups(groups)),
        gauge("fraud_state_cards", "Cards in the state", state["cards"]),
        gauge(
            "fraud_state_cards_without_profile",
            "Cards in the state without a known profile",
            state["cards_without_profile"],
        ),
        gauge("fraud_state_events", "Transactions kept in the state", state["events"]),
        gauge("fraud_state_bytes", "Bytes of the working copies of the state", state["local_bytes"]),
    ]


def _infos(groups: Groups) -> list[Metric]:
    families: list[Metric] = []
    job = InfoMetricFamily("fraud_job", "The job, its query and its release", labels=[])
    names = ("job_id", "query_id", "release")
    for values in sorted({tuple(str(record[name]) for name in names) for record in groups.values()}):
        job.add_metric([], dict(zip(names, values, strict=True)))
    families.append(job)
    model = InfoMetricFamily("fraud_model", "The champion when the group last decided", labels=["key_group"])
    rollout = InfoMetricFamily(
        "fraud_rollout", "The champion's rollout when the group last decided", labels=["key_group"]
    )
    for group, record in groups.items():
        if record["model"]:
            model.add_metric([str(group)], _model_labels(record["model"]))
        if record["rollout_id"]:
            rollout.add_metric([str(group)], {"rollout_id": record["rollout_id"]})
    return [*families, model, rollout]


def _model_labels(model: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(model[name]) for name in ("name", "version", "digest") if name in model}

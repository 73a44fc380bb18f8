"""Metrics from the newest progress record of each key group."""

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client.core import Metric

from service.health.groups import Groups, key_groups
from service.health.rollout_progress import unusable
from service.metrics.families import infos, sample, samples
from service.metrics.table import FAMILIES

OF_A_GROUP: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "commit_id": lambda record: record["commit_id"],
    "epoch": lambda record: record["epoch"],
    "progress_timestamp_seconds": lambda record: record["written_at"] / 1e3,
    "commit_interval_seconds": lambda record: (record["written_at"] - record["started_at"]) / 1e3,
    "table_lag_records": lambda record: sum(record["table_lag"].values()),
}
"""Gauges of each key group's newest progress record: name -> value."""


def of_groups(groups: Groups, now_s: float) -> list[Metric]:
    """Return sizes of the job's state, and each key group's newest commit, model and rollouts."""
    families = _sizes(groups)
    for name, value in OF_A_GROUP.items():
        values = [([str(group)], value(record)) for group, record in groups.items()]
        families.append(samples(f"fraud_group_{name}", values))
    ages = [([str(group)], max(0.0, now_s - record["written_at"] / 1e3)) for group, record in groups.items()]
    phases = [
        ([str(group), phase], milliseconds / 1e3)
        for group, record in groups.items()
        for phase, milliseconds in record["phases_ms"].items()
    ]
    aside = [([str(group)], float(len(unusable(record)))) for group, record in groups.items()]
    return [
        *families,
        samples("fraud_group_progress_age_seconds", ages),
        samples("fraud_group_phase_seconds", phases),
        samples("fraud_rollouts_set_aside", aside),
        *_infos(groups),
    ]


def _sizes(groups: Groups) -> list[Metric]:
    state = {
        name: sum(record["state"].get(name, 0) for record in groups.values())
        for name in ("cards", "cards_without_profile", "events", "local_bytes")
    }
    return [
        sample("fraud_key_groups", key_groups(groups)),
        sample("fraud_state_cards", state["cards"]),
        sample("fraud_state_cards_without_profile", state["cards_without_profile"]),
        sample("fraud_state_events", state["events"]),
        sample("fraud_state_bytes", state["local_bytes"]),
    ]


def _infos(groups: Groups) -> list[Metric]:
    jobs = {tuple(str(record[name]) for name in FAMILIES["fraud_job"].labels) for record in groups.values()}
    models = (
        (str(group), *(str(record["model"].get(name, "")) for name in ("name", "version", "digest")))
        for group, record in groups.items()
        if record["model"]
    )
    rollouts = (
        (str(group), record["rollout_id"]) for group, record in groups.items() if record["rollout_id"]
    )
    return [
        infos("fraud_job", sorted(jobs)),
        infos("fraud_model", models),
        infos("fraud_rollout", rollouts),
    ]

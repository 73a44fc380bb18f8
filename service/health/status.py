"""The JSON of `/v1/status`. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from service.health.codes import link
from service.health.event_time import event_times, watermark_of
from service.health.feature_drift import feature_drift
from service.health.groups import key_groups
from service.health.job_watch import View
from service.health.rollout_progress import champions, open_rollout
from service.settings import ServiceSettings

MOST_FEATURES = 5
"""Number of features whose drift is listed."""
SIZES = ("cards", "cards_without_profile", "events", "local_bytes")


def status_of(view: View, settings: ServiceSettings, versions: Mapping[str, str]) -> dict[str, Any]:
    """Return the status object.

    Durations are in seconds unless their name ends in `_ms`, instants in seconds since 1970-01-01 UTC.
    """
    rates = view.assessment.rates if view.assessment else None
    latencies = rates.latency_s if rates else {}
    return {
        "job_id": settings.job_id,
        "now": view.now_s,
        "verdict": view.diagnosis.verdict.value,
        "reasons": [
            {
                "code": reason.code,
                "detail": reason.detail,
                "since": reason.since_s,
                "runbook": link(reason.code, settings.runbook),
            }
            for reason in view.diagnosis.reasons
        ],
        "parts": list(_parts(view, settings.topics.heartbeats)),
        "throughput_per_s": None if rates is None else round(rates.per_s, 3),
        "latency_ms": {f"p{share}": round(s * 1e3, 3) for share, s in sorted(latencies.items())},
        "inputs": list(_inputs(view, settings)),
        "watermark": _watermark(view, settings),
        "profiles": _feed(view),
        "dead_letters": dict(sorted(view.totals.dead_letters.items())),
        "recent": _recent(view),
        "state": _state(view),
        "epoch": _epoch(view),
        "rollout": {"champion": champions(view.groups), "open": open_rollout(view.groups)},
        "feature_drift": _feature_drift(view),
        "limits": _limits(view),
        "versions": {**versions, **_release(view)},
        "takeover": _takeover(view),
        "restarts": view.assessment.restarts if view.assessment else 0,
    }


def _release(view: View) -> dict[str, str]:
    """Return the release of the job, as its newest progress records name it; several during an upgrade."""
    releases = {str(record["release"]) for record in view.groups.values()}
    return {"job": ", ".join(sorted(releases))} if releases else {}


def _takeover(view: View) -> dict[str, Any] | None:
    """Return the job whose output this one continues; None for a job that began its output."""
    takeover = next((record["takeover"] for record in view.groups.values() if "takeover" in record), None)
    if takeover is None:
        return None
    told = {name: takeover[name] for name in ("query_id", "release", "key_groups", "asked_by")}
    return {**told, "at": takeover["at"] / 1e3}


def _parts(view: View, heartbeats: str) -> Iterator[dict[str, Any]]:
    """Yield the state of each readiness check, and of the parts that have no check: ok, bad or unknown.

    Whether the profile feed is alive is known only from Debezium's heartbeats.
    """
    for check in view.checks:
        result = check.to_json()
        state = "unknown" if result["ok"] is None else "ok" if result["ok"] else "bad"
        yield {"name": check.name, "state": state, "detail": result["detail"]}
    assessment = view.assessment
    recent = assessment.recent if assessment is not None else None
    for name, code, is_known in (
        ("feed", "feed_silent", view.lag is not None and "heartbeat" in view.lag.feed_ms),
        ("checkpoint", "checkpoint_old", assessment is not None),
        ("inputs", "mostly_dead_letters", recent is not None),
        ("model", "model_fails", recent is not None),
    ):
        details = [reason.detail for reason in view.diagnosis.reasons if reason.code == code]
        if name == "feed" and view.lag is not None and not is_known:
            details = [f"not known: {heartbeats} has no heartbeat; see profiles_quiet"]
        state = "unknown" if not is_known else "bad" if details else "ok"
        yield {"name": name, "state": state, "detail": "; ".join(details)}


def _inputs(view: View, settings: ServiceSettings) -> Iterator[dict[str, Any]]:
    findings = view.assessment.findings if view.assessment else {}
    for p in view.lag.partitions if view.lag else ():
        finding = findings.get((p.topic, p.partition))
        yield {
            "topic": p.topic,
            "partition": p.partition,
            "lag_records": p.records,
            "lag_seconds": p.seconds(view.now_s),
            "held": p.held,
            "position": p.committed,
            "stable_end": p.end if p.held_from is None else p.held_from,
            "end": p.end,
            "verdict": finding.verdict.value if finding else None,
            "code": finding.code if finding else None,
            "detail": finding.detail if finding else "",
            "since": finding.since_s if finding else None,
            "runbook": link(finding.code, settings.runbook) if finding else None,
        }


def _watermark(view: View, settings: ServiceSettings) -> dict[str, Any]:
    times = event_times(view.groups, view.lag, view.now_s, settings.idle_after_s)
    watermark = watermark_of(times)
    return {
        "timestamp": watermark,
        "age_s": None if watermark is None else max(0.0, view.now_s - watermark),
        "idle": [{"topic": t.topic, "partition": t.partition} for t in times if t.is_idle],
    }


def _feed(view: View) -> dict[str, float | None]:
    at_ms = view.lag.feed_ms if view.lag else {}
    ages = {signal: max(0.0, view.now_s - at / 1e3) for signal, at in at_ms.items()}
    return {f"{signal}_age_s": ages.get(signal) for signal in ("change", "heartbeat")}


def _recent(view: View) -> dict[str, Any] | None:
    """Return what the job has processed in the last minutes; None until the sidecar has looked twice."""
    recent = view.assessment.recent if view.assessment else None
    return None if recent is None else asdict(recent)


def _state(view: View) -> dict[str, Any]:
    sizes = {name: sum(record["state"].get(name, 0) for record in view.groups.values()) for name in SIZES}
    return {
        **sizes,
        "key_groups": key_groups(view.groups),
        "table_lag": sum(sum(record["table_lag"].values()) for record in view.groups.values()),
        "progress_age_s": {
            str(group): max(0.0, view.now_s - record["written_at"] / 1e3)
            for group, record in sorted(view.groups.items())
        },
    }


def _epoch(view: View) -> dict[str, Any]:
    """Return the newest epoch's number, the age of each group's running epoch, and the checkpoint's age.

    A group's newest checkpoint is as old as its running epoch, because an epoch begins when the state has
    been saved. `checkpoint_age_s` is the greatest of the groups' ages.
    """
    epochs = view.assessment.epochs if view.assessment else {}
    ages = {group: max(0.0, view.now_s - epoch.since_s) for group, epoch in epochs.items()}
    return {
        "number": max((epoch.number for epoch in epochs.values()), default=None),
        "age_s": {str(group): age for group, age in sorted(ages.items())},
        "checkpoint_age_s": max(ages.values(), default=None),
    }


def _feature_drift(view: View) -> dict[str, Any] | None:
    """Return the features that drifted most from the champion's training; None without feature counts."""
    drift = feature_drift(view.groups)
    if drift is None:
        return None
    return {
        "model": dict(drift.model),
        "counted": dict(drift.counted),
        "greatest": drift.greatest(MOST_FEATURES),
    }


def _limits(view: View) -> dict[str, float]:
    assessment = view.assessment
    if assessment is None:
        return {}
    return {
        "commit_s": assessment.limits.commit_s,
        "latency_s": assessment.limits.latency_s,
        "held_s": assessment.limits.held_s,
        "heartbeat_s": assessment.heartbeat_s,
        "epoch_s": assessment.epoch_s,
    }

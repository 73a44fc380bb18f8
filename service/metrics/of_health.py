"""Metrics of verdicts, their limits and the readiness checks."""

from prometheus_client.core import Metric

from service.health.codes import OF_PARTITIONS, Verdict
from service.health.diagnosis import Diagnosis
from service.health.monitor import Assessment
from service.health.readiness import Check
from service.metrics.families import sample, samples, state_set


def of_diagnosis(diagnosis: Diagnosis, checks: tuple[Check, ...]) -> list[Metric]:
    """Return the verdict on the whole job, the onset of its reasons, and the readiness checks."""
    since: dict[str, float] = {}
    for reason in diagnosis.reasons:
        if reason.since_s is not None:
            since[reason.code] = min(reason.since_s, since.get(reason.code, reason.since_s))
    return [
        state_set("fraud_verdict", Verdict, [([], diagnosis.verdict.value)]),
        samples("fraud_reason_since_timestamp_seconds", (([code], at) for code, at in sorted(since.items()))),
        samples("fraud_ready_check", (([check.name], float(check.is_ok)) for check in checks)),
    ]


def of_assessment(assessment: Assessment) -> list[Metric]:
    """Return the verdicts on the input partitions, the limits, the key groups' epochs, and restarts."""
    verdicts = [([topic, str(n)], finding) for (topic, n), finding in assessment.findings.items()]
    limits = {
        "commit": assessment.limits.commit_s,
        "latency": assessment.limits.latency_s,
        "held": assessment.limits.held_s,
        "heartbeat": assessment.heartbeat_s,
        "epoch": assessment.epoch_s,
        "silence": assessment.silence_s,
    }
    epochs = [([str(group)], epoch.since_s) for group, epoch in assessment.epochs.items()]
    return [
        state_set(
            "fraud_partition_verdict",
            OF_PARTITIONS,
            ((key, finding.verdict.value) for key, finding in verdicts),
        ),
        samples(
            "fraud_partition_verdict_since_timestamp_seconds",
            ((key, finding.since_s) for key, finding in verdicts),
        ),
        samples("fraud_limit_seconds", (([name], seconds) for name, seconds in limits.items())),
        samples("fraud_group_epoch_start_timestamp_seconds", epochs),
        samples(
            "fraud_group_epoch_age_seconds",
            ((key, max(0.0, assessment.at_s - since)) for key, since in epochs),
        ),
        sample("fraud_job_restarts", assessment.restarts),
    ]

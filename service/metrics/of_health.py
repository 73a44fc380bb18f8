"""Metrics of verdicts, their limits and the readiness checks."""

from prometheus_client.core import Metric

from service.health.codes import OF_PARTITIONS, Verdict
from service.health.diagnosis import Diagnosis
from service.health.monitor import Assessment
from service.health.readiness import Check
from service.metrics.families import counter, gauges, state_set
from service.metrics.of_lag import PLACE


def of_diagnosis(diagnosis: Diagnosis, checks: tuple[Check, ...]) -> list[Metric]:
    """Return the verdict on the whole job, the onset of its reasons, and the readiness checks."""
    since: dict[str, float] = {}
    for reason in diagnosis.reasons:
        if reason.since_s is not None:
            since[reason.code] = min(reason.since_s, since.get(reason.code, reason.since_s))
    return [
        state_set("fraud_verdict", "Verdict on the job", [], Verdict, [([], diagnosis.verdict.value)]),
        gauges(
            "fraud_reason_since_timestamp_seconds",
            "Onset of a problem, by reason code",
            ["code"],
            (([code], at) for code, at in sorted(since.items())),
        ),
        gauges(
            "fraud_ready_check",
            "1 when the readiness check passes",
            ["check"],
            (([check.name], float(check.is_ok)) for check in checks),
        ),
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
    }
    epochs = [([str(group)], epoch.since_s) for group, epoch in assessment.epochs.items()]
    return [
        state_set(
            "fraud_partition_verdict",
            "Verdict on the partition",
            PLACE,
            OF_PARTITIONS,
            ((key, finding.verdict.value) for key, finding in verdicts),
        ),
        gauges(
            "fraud_partition_verdict_since_timestamp_seconds",
            "Onset of the verdict",
            PLACE,
            ((key, finding.since_s) for key, finding in verdicts),
        ),
        gauges(
            "fraud_limit_seconds",
            "Limits of times, learned from measured times",
            ["limit"],
            (([name], seconds) for name, seconds in limits.items()),
        ),
        gauges(
            "fraud_group_epoch_start_timestamp_seconds",
            "Time of the first observed commit of the running epoch",
            ["key_group"],
            epochs,
        ),
        gauges(
            "fraud_group_epoch_age_seconds",
            "Age of the running epoch, and of the newest checkpoint",
            ["key_group"],
            ((key, max(0.0, assessment.at_s - since)) for key, since in epochs),
        ),
        counter(
            "fraud_job_restarts",
            "Instances of the job that took over since the sidecar started",
            assessment.restarts,
        ),
    ]

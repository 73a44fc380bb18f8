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
        state_set("fraud_verdict", "How the job does", [], Verdict, [([], diagnosis.verdict.value)]),
        gauges(
            "fraud_reason_since_timestamp_seconds",
            "Since when something is not as it should be, by reason code",
            ["code"],
            (([code], at) for code, at in sorted(since.items())),
        ),
        gauges(
            "fraud_ready_check",
            "1 when the rule of readiness holds",
            ["check"],
            (([check.name], float(check.is_ok)) for check in checks),
        ),
    ]


def of_assessment(assessment: Assessment) -> list[Metric]:
    """Return the verdicts on the input partitions, their limits, epochs and restarts."""
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
            "How the job does in the partition",
            PLACE,
            OF_PARTITIONS,
            ((key, finding.verdict.value) for key, finding in verdicts),
        ),
        gauges(
            "fraud_partition_verdict_since_timestamp_seconds",
            "Since when the verdict holds",
            PLACE,
            ((key, finding.since_s) for key, finding in verdicts),
        ),
        gauges(
            "fraud_limit_seconds",
            "How long something may take, learned from how long it took",
            ["limit"],
            (([name], seconds) for name, seconds in limits.items()),
        ),
        gauges(
            "fraud_group_epoch_start_timestamp_seconds",
            "When the first commit of the running epoch was seen",
            ["key_group"],
            epochs,
        ),
        gauges(
            "fraud_group_epoch_age_seconds",
            "Time since then: the newest checkpoint is as old",
            ["key_group"],
            ((key, max(0.0, assessment.at_s - since)) for key, since in epochs),
        ),
        counter(
            "fraud_job_restarts",
            "Instances of the job that took over since the sidecar started",
            assessment.restarts,
        ),
    ]

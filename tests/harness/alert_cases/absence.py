"""Cases of the alerts about absent metrics: one or two for each metric that a rule uses."""

from deploy.prometheus.absence import used
from harness.promtool import Case, Gone, Series

ROLLOUT = 'rollout_id="r1"'
PLACE = 'topic="transactions",partition="1"'
PHASE = f'fraud_rollout_phase{{{ROLLOUT},fraud_rollout_phase="shadow"}}'
APPLIED = f'fraud_rollout_applied_seq{{{ROLLOUT},key_group="1"}}'
GUARD = f'fraud_guard_verdict{{{ROLLOUT},challenger="b",guard="failures",fraud_guard_verdict="pass"}}'
AGE, IDLE = f"fraud_partition_watermark_age_seconds{{{PLACE}}}", f"fraud_partition_idle{{{PLACE}}}"
VERDICT = 'fraud_verdict{fraud_verdict="STOP"}'


def gone(
    metric: str,
    series: str = "",
    *,
    beside: Series | None = None,
    quiet: tuple[Series, ...] = ({"up": 0},),
    labels: dict[str, str] | None = None,
    fires: int = 10,
) -> Case:
    """A metric is gone for 30 minutes, the first five of which Prometheus still shows it, and comes back."""
    series = series or metric
    return Case(
        "FraudMetricAbsent",
        {"up": 1, series: 1, **(beside or {})},
        {series: Gone()},
        fires_after=fires,
        quiet_after=0,
        labels=labels or {},
        almost=[{series: Gone(), **other} for other in quiet],
        select={"metric": metric},
        during=30,
    )


SPECIAL = {
    "fraud_guard_verdict": gone(
        "fraud_guard_verdict",
        GUARD,
        beside={PHASE: 1},
        quiet=({PHASE: 0},),
        labels={"rollout_id": "r1", "fraud_rollout_phase": "shadow"},
        fires=20,
    ),
    "fraud_rollout_phase": gone(
        "fraud_rollout_phase",
        PHASE,
        beside={APPLIED: 2},
        quiet=({APPLIED: Gone()},),
        labels={"rollout_id": "r1", "key_group": "1"},
    ),
    "fraud_rollout_applied_seq": gone(
        "fraud_rollout_applied_seq",
        APPLIED,
        beside={PHASE: 1},
        quiet=({PHASE: Gone()},),
        labels={"rollout_id": "r1", "fraud_rollout_phase": "shadow"},
    ),
    "fraud_watermark_age_seconds": gone(
        "fraud_watermark_age_seconds",
        beside={AGE: 3, IDLE: 0},
        quiet=({IDLE: 1},),
        labels={"topic": "transactions", "partition": "1"},
    ),
    "fraud_reason_since_timestamp_seconds": gone(
        "fraud_reason_since_timestamp_seconds",
        'fraud_reason_since_timestamp_seconds{code="group_missing"}',
        beside={VERDICT: 1},
        quiet=({VERDICT: 0},),
        labels={"fraud_verdict": "STOP"},
    ),
}
OTHERWISE = (
    gone(
        "fraud_guard_verdict",
        GUARD,
        beside={PHASE.replace("shadow", "canary"): 1},
        quiet=(),
        labels={"rollout_id": "r1", "fraud_rollout_phase": "canary"},
        fires=20,
    ),
    gone(
        "fraud_reason_since_timestamp_seconds",
        'fraud_reason_since_timestamp_seconds{code="not_moving"}',
        beside={VERDICT.replace("STOP", "STALL"): 1},
        quiet=(),
        labels={"fraud_verdict": "STALL"},
    ),
)
CASES = (*(SPECIAL.get(metric) or gone(metric) for metric in used()), *OTHERWISE)

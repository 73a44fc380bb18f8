"""Dashboard for engineers on call: lag first, then objectives, work, and correctness."""

from deploy.grafana.panels import Dashboard, Panel, Query, Row
from deploy.grafana.queries import gauge, quantiles, rate

PLACE = "{{topic}}-{{partition}}"
LATENCY = Panel(
    "Arrival to decision",
    "From a transaction's Kafka timestamp to the commit. The objective is half a second for 99.9 %.",
    "s",
    "latency_budget",
    quantiles("fraud_event_to_alert_seconds", "0.5", "0.95", "0.99", "0.999"),
    red_from=0.5,
)
LAG_SECONDS = Panel(
    "Lag, seconds",
    "Age of the oldest unprocessed record, by partition. Near zero is good.",
    "s",
    "falling_behind",
    (Query(gauge("fraud_partition_lag_seconds", "topic, partition"), PLACE),),
    red_from=10,
)
LAG_RECORDS = Panel(
    "Lag, records",
    "Records that are available and not processed, by partition.",
    "short",
    "falling_behind",
    (Query(gauge("fraud_partition_lag_records", "topic, partition"), PLACE),),
)
DEAD_LETTERS = Panel(
    "Dead letters",
    "Refused records, by reason. A steady rate points to one sender, a step to a change of the schema.",
    "ops",
    "dead_letters",
    (Query(rate("fraud_dead_letters_total", "reason"), "{{reason}}"),),
    stacked=True,
)
THROUGHPUT = Panel(
    "Throughput",
    "Incoming records, decided transactions and alerts.",
    "ops",
    "stuck",
    (
        Query(
            'sum(max by (topic, partition) (rate(fraud_partition_end_offset{job="$job"}[$__rate_interval])))',
            "incoming",
        ),
        Query(rate("fraud_transactions_total"), "decided"),
        Query(rate("fraud_alerts_total"), "alerts"),
    ),
)
_LAG = Row(
    "Lag",
    (
        Panel(
            "Lag",
            "Age of the oldest unprocessed record of all inputs.",
            "s",
            "freshness_budget",
            (Query(gauge("fraud_lag_seconds")),),
            kind="stat",
            width=6,
            height=4,
            red_from=10,
        ),
        Panel(
            "Held back",
            "Records that read_committed consumers do not get until a producer ends its open Kafka "
            "transaction.",
            "short",
            "open_transaction",
            (Query(gauge("fraud_held_records")),),
            kind="stat",
            width=6,
            height=4,
        ),
        Panel(
            "Verdict",
            "The job's verdict, from its most severe reason.",
            "short",
            "not_ready",
            (Query(gauge("fraud_verdict", "fraud_verdict") + " == 1", "{{fraud_verdict}}"),),
            kind="stat",
            width=6,
            height=4,
        ),
        Panel(
            "Firing alerts",
            "Firing alerts of the project's rules, by severity; 0 is good.",
            "short",
            "not_ready",
            (
                Query(
                    'count(ALERTS{alertname=~"Fraud.*",alertstate="firing",severity="page"}) or vector(0)',
                    "page",
                ),
                Query(
                    'count(ALERTS{alertname=~"Fraud.*",alertstate="firing",severity="ticket"}) or vector(0)',
                    "ticket",
                ),
            ),
            kind="stat",
            width=6,
            height=4,
            red_from=1,
        ),
        LAG_SECONDS,
        LAG_RECORDS,
        Panel(
            "Partitions with problems",
            "Partitions by verdict, except OK and IDLE.",
            "short",
            "not_moving",
            (
                Query(
                    "count by (fraud_partition_verdict) (max by (topic, partition, fraud_partition_verdict) "
                    '(fraud_partition_verdict{job="$job",fraud_partition_verdict!~"OK|IDLE"}) == 1) '
                    "or max(fraud_sidecar_broker_up) * 0",
                    "{{fraud_partition_verdict}}",
                ),
            ),
            red_from=1,
        ),
        Panel(
            "Readiness",
            "Each check of /readyz: 1 passes, 0 fails.",
            "short",
            "not_ready",
            (Query('min by (check) (fraud_ready_check{job="$job"})', "{{check}}"),),
            kind="state-timeline",
        ),
    ),
)
_OBJECTIVES = Row(
    "Objectives",
    (
        LATENCY,
        Panel(
            "Burn of the error budgets",
            "Slow transactions and time with stale records in the last hour, relative to the budgets of 30 "
            "days: 1 uses up the budget in 30 days. On-call is paged if a value is above 14.4, and that of "
            "the last 5 minutes is, too.",
            "short",
            "freshness_budget",
            (
                Query('job:fraud_slow:ratio_rate1h{job="$job"} / 0.001', "latency"),
                Query('job:fraud_stale:avg1h{job="$job"} / 0.001', "freshness"),
            ),
            red_from=14.4,
        ),
    ),
)
_WORK = Row("Work", (THROUGHPUT, DEAD_LETTERS))
_CORRECT = Row(
    "Correctness and freshness",
    (
        Panel(
            "What the audit found",
            "Missing, duplicated, unexpected or different records, in 15 minutes. Above 0, on-call is paged.",
            "short",
            "alerts_missing",
            tuple(
                Query(f"sum(increase(fraud_audit_{kind}_total[15m]))", kind)
                for kind in ("missing", "duplicated", "unexpected", "different")
            ),
            red_from=1,
        ),
        Panel(
            "Age of the profiles' feed",
            "Time since Debezium's newest heartbeat and since the newest change.",
            "s",
            "feed_silent",
            (Query(gauge("fraud_profile_feed_age_seconds", "signal"), "{{signal}}"),),
        ),
        Panel(
            "Age of progress",
            "Time since each key group's newest commit; an idle group commits every 10 s.",
            "s",
            "group_silent",
            (Query(gauge("fraud_group_progress_age_seconds", "key_group"), "group {{key_group}}"),),
            red_from=30,
        ),
        Panel(
            "Age of the checkpoint",
            "Time since each key group's running epoch began, and how long an epoch may take.",
            "s",
            "checkpoint_old",
            (
                Query(gauge("fraud_group_epoch_age_seconds", "key_group"), "group {{key_group}}"),
                Query(gauge("fraud_limit_seconds", where='limit="epoch"'), "limit"),
            ),
        ),
    ),
)
DASHBOARD = Dashboard(
    "fraud-overview",
    "Card fraud: overview",
    "For engineers on call: lag first, then objectives, work, and correctness.",
    (_LAG, _OBJECTIVES, _WORK, _CORRECT),
)

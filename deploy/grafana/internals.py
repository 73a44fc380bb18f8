"""Dashboard of the job's internals: time by phase, size of the state, event time, the sidecar."""

from deploy.grafana.panels import Dashboard, Panel, Query, Row
from deploy.grafana.queries import JOB, ahead, gauge, quantile, quantiles, rate

GROUP = "group {{key_group}}"
PHASES = Panel(
    "Where time goes",
    "Seconds per second that all key groups spend in a phase; `take` includes the wait for records, and "
    "`epoch` is the wait for Spark. If "
    "`score` grows after a rollout, the cause is its model.",
    "s",
    "falling_behind",
    (Query(rate("fraud_phase_seconds_total", "phase"), "{{phase}}"),),
    stacked=True,
)
COMMITS = Panel(
    "Commits",
    "Kafka transactions per second, and the mean time from one commit of a key group to its next.",
    "short",
    "no_commits",
    (
        Query(rate("fraud_commits_total"), "commits per second"),
        Query(
            f"{rate('fraud_commit_interval_seconds_sum')} / {rate('fraud_commit_interval_seconds_count')}",
            "seconds between commits",
        ),
    ),
)
PER_COMMIT = Panel(
    "Records in a commit",
    "Mean number of records per Kafka transaction; it grows with the load.",
    "short",
    "falling_behind",
    (Query(f"{rate('fraud_records_total')} / {rate('fraud_commits_total')}", "records"),),
)
_TIME = Row(
    "Time",
    (
        PHASES,
        Panel(
            "Phases of the newest commit",
            "Seconds by key group and phase; a group that differs may have a hot card or a slow machine.",
            "s",
            "partition_behind",
            (Query(gauge("fraud_group_phase_seconds", "key_group, phase"), GROUP + " {{phase}}"),),
        ),
        COMMITS,
        PER_COMMIT,
        Panel(
            "Commit interval by key group",
            "Time from the previous commit of a key group to its newest.",
            "s",
            "no_commits",
            (Query(gauge("fraud_group_commit_interval_seconds", "key_group"), GROUP),),
        ),
        Panel(
            "Learned limits",
            "Longest time that counts as normal, by kind: ten times the 99th percentile of the newest "
            "measured times, within bounds.",
            "s",
            "falling_behind",
            (Query(gauge("fraud_limit_seconds", "limit"), "{{limit}}"),),
        ),
    ),
)
_STATE = Row(
    "State",
    (
        Panel(
            "Cards",
            "Cards in the state, and those without a profile.",
            "short",
            "strangers",
            (
                Query(gauge("fraud_state_cards"), "cards"),
                Query(gauge("fraud_state_cards_without_profile"), "without a profile"),
            ),
        ),
        Panel(
            "Transactions kept",
            "Transactions in the state of all cards; old ones are dropped.",
            "short",
            "state_grows",
            (Query(gauge("fraud_state_events"), "transactions"),),
        ),
        Panel(
            "Bytes",
            "Size of the working copies.",
            "bytes",
            "state_grows",
            (Query(gauge("fraud_state_bytes"), "bytes"),),
        ),
        Panel(
            "Starts and rebuilds",
            "Starts of the job, and rebuilds of working copies, in an hour.",
            "short",
            "restarts",
            (
                Query(f"max(increase(fraud_job_restarts_total{JOB}[1h]))", "starts"),
                Query(f"max(increase(fraud_state_rebuilds_total{JOB}[1h]))", "rebuilds"),
            ),
        ),
        Panel(
            "Tables to be read",
            "Records of the tables that a key group must still read before it decides.",
            "short",
            "loading_tables",
            (Query(gauge("fraud_group_table_lag_records", "key_group"), GROUP),),
        ),
        Panel(
            "Epoch",
            "Number of the epoch by key group; it must grow.",
            "short",
            "checkpoint_old",
            (Query(gauge("fraud_group_epoch", "key_group"), GROUP),),
        ),
    ),
)
_EVENTS = Row(
    "Event time",
    (
        Panel(
            "Age of the watermark",
            "By partition, idle ones included; these do not hold back the job's watermark.",
            "s",
            "watermark_stuck",
            (
                Query(
                    gauge("fraud_partition_watermark_age_seconds", "topic, partition"),
                    "{{topic}}-{{partition}}",
                ),
            ),
        ),
        Panel(
            "Lateness",
            "Time from a transaction's event time to its arrival.",
            "s",
            "out_of_order",
            quantiles("fraud_event_lateness_seconds", "0.5", "0.95", "0.99"),
        ),
        Panel(
            "Idle partitions",
            "1: no record waits and none has come for a minute.",
            "short",
            "idle",
            (Query(gauge("fraud_partition_idle", "topic, partition"), "{{topic}}-{{partition}}"),),
            kind="state-timeline",
        ),
        Panel(
            "Clocks",
            "Seconds by which the job's newest commit and the senders' newest event are ahead of Prometheus.",
            "s",
            "clock_skew",
            (
                Query(
                    ahead("fraud_group_progress_timestamp_seconds"),
                    "job",
                ),
                Query(
                    ahead("fraud_partition_event_time_timestamp_seconds"),
                    "senders",
                ),
            ),
            red_from=5,
        ),
    ),
)
_SIDECAR = Row(
    "The sidecar",
    (
        Panel(
            "Requests",
            "By route and status.",
            "reqps",
            "sidecar_errors",
            (Query(rate("fraud_sidecar_http_requests_total", "route, status"), "{{route}} {{status}}"),),
        ),
        Panel(
            "Time to answer",
            "99th percentile by route.",
            "s",
            "sidecar_errors",
            (Query(quantile("fraud_sidecar_http_request_duration_seconds", "0.99", "route"), "{{route}}"),),
        ),
        Panel(
            "Processor",
            "Cores that the sidecar uses.",
            "short",
            "sidecar_down",
            (Query(rate("process_cpu_seconds_total"), "cores"),),
        ),
        Panel(
            "Memory",
            "Resident memory of the sidecar.",
            "bytes",
            "sidecar_down",
            (Query(gauge("process_resident_memory_bytes"), "bytes"),),
        ),
    ),
)
DASHBOARD = Dashboard(
    "fraud-internals",
    "Card fraud: job internals",
    "Time by phase, size of the state, event time, and the sidecar.",
    (_TIME, _STATE, _EVENTS, _SIDECAR),
)

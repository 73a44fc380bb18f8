"""Dashboard for load tests: whether the job keeps up, what it does, and whether that is right."""

from deploy.grafana.internals import COMMITS, PER_COMMIT, PHASES
from deploy.grafana.overview import DEAD_LETTERS, LAG_RECORDS, LAG_SECONDS, LATENCY, THROUGHPUT
from deploy.grafana.panels import Dashboard, Panel, Query, Row
from deploy.grafana.queries import JOB, gauge, rate

WORKING = 'phase!="take"'
DASHBOARD = Dashboard(
    "fraud-load-test",
    "Card fraud: load test",
    "The job during a load test. Latency from intended send times is in the test's report.",
    (
        Row("Does it keep up?", (THROUGHPUT, LAG_RECORDS, LAG_SECONDS, LATENCY)),
        Row(
            "What does it do?",
            (
                COMMITS,
                PER_COMMIT,
                PHASES,
                Panel(
                    "Load of a key group",
                    "Mean share of time in which a key group does not wait for records; 1 is its capacity.",
                    "percentunit",
                    "falling_behind",
                    (
                        Query(
                            f"sum({rate('fraud_phase_seconds_total', 'phase', WORKING)})"
                            f" / {gauge('fraud_key_groups')}",
                            "mean",
                        ),
                    ),
                    red_from=0.9,
                ),
            ),
        ),
        Row(
            "Is it right?",
            (
                DEAD_LETTERS,
                Panel(
                    "Repeats and missing scores",
                    "Transactions left out as repetitions, and transactions without a score.",
                    "ops",
                    "input_repeats",
                    (
                        Query(rate("fraud_duplicates_total"), "repeats"),
                        Query(rate("fraud_scoring_failures_total"), "without a score"),
                    ),
                ),
                Panel(
                    "Held back",
                    "Records that wait for the end of the generator's open Kafka transactions, by partition.",
                    "short",
                    "open_transaction",
                    (
                        Query(
                            gauge("fraud_partition_held_records", "topic, partition"),
                            "{{topic}}-{{partition}}",
                        ),
                    ),
                ),
                Panel(
                    "Alerts",
                    "Alerts per minute.",
                    "short",
                    "alerts_dry_up",
                    (Query(f"max(increase(fraud_alerts_total{JOB}[1m]))", "alerts"),),
                ),
            ),
        ),
    ),
    refresh="5s",
    since="now-15m",
)

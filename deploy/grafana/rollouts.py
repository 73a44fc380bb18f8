"""Dashboard of rollouts: the model that decides, and its challengers."""

from deploy.grafana.panels import Dashboard, Panel, Query, Row
from deploy.grafana.queries import JOB, gauge, quantile, rate

TRIAL = "{{rollout_id}} {{challenger}}"
_NOW = Row(
    "In force",
    (
        Panel(
            "Model",
            "Champion at the last decision, by key group; groups differ only for seconds during a change.",
            "short",
            "groups_disagree",
            (Query(gauge("fraud_model_info", "key_group, name, version, digest")),),
            kind="table",
        ),
        Panel(
            "Rollout",
            "Champion's rollout at the last decision, by key group.",
            "short",
            "groups_disagree",
            (Query(gauge("fraud_rollout_info", "key_group, rollout_id")),),
            kind="table",
        ),
        Panel(
            "Phase",
            "Phase of each of the newest rollouts.",
            "short",
            "guard_breach",
            (
                Query(
                    gauge("fraud_rollout_phase", "rollout_id, fraud_rollout_phase") + " == 1",
                    "{{rollout_id}} {{fraud_rollout_phase}}",
                ),
            ),
            kind="state-timeline",
        ),
        Panel(
            "Events applied",
            "Number of a rollout's last event that a key group has applied; the rollout's lines meet within "
            "seconds.",
            "short",
            "groups_disagree",
            (
                Query(
                    gauge("fraud_rollout_applied_seq", "rollout_id, key_group"),
                    "{{rollout_id}} group {{key_group}}",
                ),
            ),
        ),
        Panel(
            "Set aside",
            "Rollouts that a key group cannot use; 0 is good.",
            "short",
            "rollouts_set_aside",
            (Query(gauge("fraud_rollouts_set_aside", "key_group"), "group {{key_group}}"),),
            red_from=1,
        ),
        Panel(
            "Without a score",
            "Share of transactions to which the model in force gave no score: the other rules decided alone.",
            "percentunit",
            "model_fails",
            (Query(f"{rate('fraud_scoring_failures_total')} / {rate('fraud_transactions_total')}", "share"),),
            red_from=0.001,
        ),
    ),
)
_TRIALS = Row(
    "Challengers",
    (
        Panel(
            "Guards",
            "Verdict of each guard on each challenger.",
            "short",
            "guard_breach",
            (
                Query(
                    gauge("fraud_guard_verdict", "rollout_id, challenger, guard, fraud_guard_verdict")
                    + " == 1",
                    TRIAL + " {{guard}} {{fraud_guard_verdict}}",
                ),
            ),
            kind="state-timeline",
        ),
        Panel(
            "Scored, and decided",
            "Transactions per second that a challenger scored, and that it decided (as canary, for members).",
            "ops",
            "guard_breach",
            (
                Query(rate("fraud_trial_transactions_total", "rollout_id, challenger"), TRIAL + " scored"),
                Query(rate("fraud_trial_decided_total", "rollout_id, challenger"), TRIAL + " decided"),
            ),
        ),
        Panel(
            "Verdicts",
            "Transactions for which only the champion, only the challenger or both would alert.",
            "ops",
            "guard_breach",
            (
                Query(
                    rate("fraud_trial_verdicts_total", "rollout_id, challenger, alerted"),
                    TRIAL + " {{alerted}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Card-hours",
            "Card-hours with alerts so far, which the guard of the alert rate counts.",
            "short",
            "guard_breach",
            (
                Query(
                    gauge("fraud_trial_card_hours", "rollout_id, challenger, alerted"), TRIAL + " {{alerted}}"
                ),
            ),
        ),
        Panel(
            "Failures",
            "Share of a challenger's transactions without a score.",
            "percentunit",
            "model_fails",
            (
                Query(
                    f"{rate('fraud_trial_failures_total', 'rollout_id, challenger')} "
                    f"/ {rate('fraud_trial_transactions_total', 'rollout_id, challenger')}",
                    TRIAL,
                ),
            ),
            red_from=0.001,
        ),
        Panel(
            "Time to score",
            "Seconds per row that the challenger and the champion took for the same rows.",
            "s",
            "guard_breach",
            (
                Query(
                    f"{rate('fraud_trial_scoring_seconds_total', 'rollout_id, challenger, role')} "
                    "/ on (rollout_id, challenger) group_left () "
                    f"{rate('fraud_trial_rows_total', 'rollout_id, challenger')}",
                    TRIAL + " {{role}}",
                ),
            ),
        ),
        Panel(
            "Scores",
            "99th percentile of the scores of the same transactions, by role.",
            "percentunit",
            "guard_breach",
            (
                Query(
                    quantile("fraud_trial_score", "0.99", "rollout_id, challenger, role"),
                    TRIAL + " {{role}}",
                ),
            ),
        ),
        Panel(
            "Shadow alerts",
            "Decisions of challengers that differ from the champion's, per second.",
            "ops",
            "guard_breach",
            (Query(f"max (rate(fraud_shadow_alerts_total{JOB}[$__rate_interval]))", "differ"),),
        ),
    ),
)
DASHBOARD = Dashboard(
    "fraud-rollouts",
    "Card fraud: model and rollouts",
    "Which model decides, and how its challengers compare.",
    (_NOW, _TRIALS),
    since="now-6h",
)

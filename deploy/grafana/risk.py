"""Dashboard for the risk team: alerts, rules, scores and precision."""

from deploy.grafana.overview import DEAD_LETTERS
from deploy.grafana.panels import Dashboard, Panel, Query, Row
from deploy.grafana.queries import JOB, gauge, quantiles, rate, share


def _precision(by: str) -> str:
    """Build the share of frauds among labelled alerts; `by` is rule, model or rollout."""
    fraud, genuine = (
        gauge("fraud_alert_outcomes", "name", f'by="{by}", outcome="{outcome}"')
        for outcome in ("fraud", "genuine")
    )
    return f"{fraud} / ({fraud} + {genuine})"


_DRIFT = gauge("fraud_feature_psi", "feature", 'window="recent"')
_ALERTS = Row(
    "Alerts",
    (
        Panel(
            "Alerts of transactions",
            "Share of transactions that alert, over the last ten minutes and over the last day.",
            "percentunit",
            "alert_storm",
            (
                Query(f"max(job:fraud_alerts_per_transaction:ratio_rate10m{JOB})", "ten minutes"),
                Query(f"max(job:fraud_alerts_per_transaction:ratio_rate1d{JOB})", "a day"),
            ),
        ),
        Panel(
            "Alerts",
            "Alerts written, and alerts suppressed by the cooldown of their card.",
            "ops",
            "alert_storm",
            (
                Query(rate("fraud_alerts_total"), "written"),
                Query(rate("fraud_suppressed_total"), "suppressed"),
            ),
        ),
        Panel(
            "Rules",
            "Alerts in which a rule fired; an alert can have several.",
            "ops",
            "alert_storm",
            (Query(rate("fraud_alert_rules_total", "rule"), "{{rule}}"),),
            stacked=True,
        ),
        Panel(
            "Scores",
            "Transactions per second by upper bound of the score.",
            "ops",
            "alerts_dry_up",
            (Query(rate("fraud_score_bucket", "le"), "{{le}}"),),
            kind="heatmap",
        ),
        Panel(
            "Quantiles of scores",
            "Median, 95th and 99th percentile; they change with the model or the customers' behaviour.",
            "percentunit",
            "alerts_dry_up",
            quantiles("fraud_score", "0.5", "0.95", "0.99"),
        ),
        Panel(
            "Precision by rule",
            "Share of frauds among the labelled alerts of 130 days; an alert can have several rules.",
            "percentunit",
            "alert_storm",
            (Query(_precision("rule"), "{{name}}"),),
        ),
        Panel(
            "Precision by model",
            "Share of frauds among the labelled alerts of 130 days; a new model version has few labels yet.",
            "percentunit",
            "alert_storm",
            (Query(_precision("model"), "{{name}}"),),
        ),
        Panel(
            "Labels and facts",
            "Labels whose transaction was found in its card's history, and merchant facts that came after "
            "their group's promise.",
            "ops",
            "clock_skew",
            (
                Query(rate("fraud_labels_total"), "labels"),
                Query(rate("fraud_late_facts_total"), "late facts"),
            ),
        ),
    ),
)
_DECIDED_WITH = Row(
    "Inputs of decisions",
    (
        Panel(
            "Without a profile",
            "Share of transactions decided without a profile of their card.",
            "percentunit",
            "profiles_missing",
            (Query(share("fraud_missing_profile_total", "fraud_transactions_total"), "share"),),
        ),
        Panel(
            "Age of profiles",
            "Age of the profiles that transactions were decided with.",
            "s",
            "profiles_quiet",
            quantiles("fraud_profile_age_seconds", "0.5", "0.9"),
        ),
        Panel(
            "Changes of profiles",
            "Valid profile changes; those that became readable after a transaction that should have used "
            "them; those ignored, because the card has a newer one; dead letters of the topic.",
            "ops",
            "profiles_quiet",
            (
                Query(rate("fraud_profile_changes_total"), "valid"),
                Query(rate("fraud_late_table_changes_total"), "late"),
                Query(rate("fraud_ignored_profile_changes_total"), "ignored"),
                Query(rate("fraud_input_dead_letters_total", where='input="profiles"'), "refused"),
            ),
        ),
        Panel(
            "Repeated and out of order",
            "Shares of repeated records, and of transactions that arrive after one of the same card with a "
            "later event time.",
            "percentunit",
            "out_of_order",
            (
                Query(share("fraud_duplicates_total", "fraud_records_total"), "repeated"),
                Query(share("fraud_late_total", "fraud_transactions_total"), "out of order"),
            ),
        ),
        DEAD_LETTERS,
        Panel(
            "Drift of features",
            "Population stability index of the last two hours against training, where it is above 0.1; above "
            "0.25 the feature is distributed differently.",
            "short",
            "feature_drift",
            (Query(f"{_DRIFT} > 0.1", "{{feature}}"),),
        ),
        Panel(
            "What the audit found",
            "Missing, duplicated, unexpected or different records in the audit's sample, since its start.",
            "short",
            "alerts_missing",
            tuple(
                Query(f"sum(fraud_audit_{kind}_total)", kind)
                for kind in ("missing", "duplicated", "unexpected", "different")
            ),
            red_from=1,
        ),
    ),
)
DASHBOARD = Dashboard(
    "fraud-risk",
    "Card fraud: risk team",
    "Alerts, rules, scores, precision, and the inputs of decisions.",
    (_ALERTS, _DECIDED_WITH),
    refresh="1m",
    since="now-24h",
)

"""The table of the sidecar's metrics; docs/metrics.md is made from it."""

from streaming_job.metric_families import counter, gauge, histogram, info, state_set, summary

_PLACE = ("topic", "partition")
_GROUP = ("key_group",)
_TRIAL = ("rollout_id", "challenger")

# fmt: off
WORK = (
    counter("fraud_commits", "Kafka transactions committed, by all key groups"),
    counter("fraud_records", "input records processed: transactions and their repetitions, profile versions, "
            "rollout events (once for each key group), labels and dead letters"),
    counter("fraud_transactions", "transactions decided"),
    counter("fraud_duplicates", "transactions skipped because they repeat a decided one"),
    counter("fraud_late", "transactions decided after one of the same card with a later event time"),
    counter("fraud_alerts", "alerts written"),
    counter("fraud_alert_rules", "alerts in which the rule fired; an alert can have several", ("rule",)),
    counter("fraud_dead_letters", "dead letters written", ("reason",)),
    counter("fraud_input_records", "records processed of an input (`transactions`, `profiles`, `labels` with "
            "chargebacks, `rollouts`, `schemas`), dead letters included, except `label_too_old`", ("input",)),
    counter("fraud_input_dead_letters", "dead letters of an input, counted as in `fraud_input_records_total`",
            ("input",)),
    counter("fraud_profile_changes", "valid profile changes read"),
    counter("fraud_ignored_profile_changes", "profile changes not applied, as their card has a newer one"),
    counter("fraud_rollouts", "rollout events applied"),
    counter("fraud_late_table_changes", "profile changes and schemas that became readable after a "
            "transaction that should have used them was decided"),
    counter("fraud_missing_profile", "transactions decided without a profile of their card"),
    counter("fraud_scoring_failures", "transactions without a score (the model raised, or returned no "
            "probability): the policy's rules that need no score decided alone"),
    counter("fraud_shadow_alerts", "shadow alerts written: one each time that a challenger and the champion "
            "disagree on whether a transaction is an alert"),
    counter("fraud_labels", "labels whose transaction was found in the card's history, refunds included; 0 "
            "in a job that keeps no merchant facts"),
    counter("fraud_late_facts", "merchant facts written after a promise that should have covered them, which "
            "may take effect late: brokers' clocks differ by more than 5 minutes"),
    counter("fraud_foreign_facts", "records on the topic of merchant facts that no job can have written; all "
            "key groups skip them"),
    counter("fraud_suppressed", "alerts suppressed because the card had one shortly before (`cooldown_s`)"),
    counter("fraud_state_rebuilds", "working copies of the state rebuilt from the checkpoint"),
)
TIME = (
    histogram("fraud_event_to_alert_seconds", "time from a transaction's arrival (Kafka timestamp) to the "
              "commit of its decision, alert or not"),
    histogram("fraud_event_lateness_seconds", "arrival minus event time of transactions"),
    histogram("fraud_profile_age_seconds", "age of the profile used for a transaction, at the transaction's "
              "arrival; profiles of Debezium's first snapshot do not count"),
    summary( "fraud_commit_interval_seconds", "time from one commit of a key group to the next"),
    counter("fraud_phase_seconds", "time spent in a phase of the work, by all key groups", ("phase",)),
    gauge("fraud_partition_event_time_timestamp_seconds", "greatest event time seen", _PLACE),
    gauge("fraud_partition_event_time_age_seconds", "time since the greatest event time", _PLACE),
    gauge("fraud_partition_watermark_timestamp_seconds", "watermark: estimated event time before which 99 of "
          "100 transactions have arrived, the newest arrival less the 99th percentile of recent lateness; no "
          "decision waits for it", _PLACE),
    gauge("fraud_partition_watermark_age_seconds", "time since the partition's watermark", _PLACE),
    gauge("fraud_partition_idle", "1 when no record waits in the partition and none arrived for a minute "
          "(`FRAUD_IDLE_AFTER_S`)", _PLACE),
    gauge("fraud_watermark_timestamp_seconds", "the lowest watermark of the partitions that are not idle; "
          "absent when all are idle"),
    gauge("fraud_watermark_age_seconds", "time since `fraud_watermark_timestamp_seconds`"),
)
LAG = (
    gauge("fraud_lag_records", "records of all inputs that the job could have processed and has not: up to "
          "the last stable offset"),
    gauge("fraud_held_records", "records from the last stable offset to the high watermark: in, or behind, a "
          "producer's open transaction, so consumers of committed records do not get them yet"),
    gauge("fraud_lost_records", "offsets from the log's end to the committed offset behind it: the job has "
          "read records there that the log no longer has"),
    gauge("fraud_lag_seconds", "how long the oldest unprocessed record has been waiting, held records "
          "included"),
    gauge("fraud_partition_lag_records", "as `fraud_lag_records`, of one partition", _PLACE),
    gauge("fraud_partition_held_records", "as `fraud_held_records`, of one partition", _PLACE),
    gauge("fraud_partition_lost_records", "as `fraud_lost_records`, of one partition", _PLACE),
    gauge("fraud_partition_lag_seconds", "as `fraud_lag_seconds`, of one partition", _PLACE),
    gauge("fraud_partition_end_offset", "offset of the next record to be written", _PLACE),
    gauge("fraud_partition_committed_offset", "offset of the next record that the job reads", _PLACE),
)
VERDICTS = (
    state_set("fraud_verdict", "verdict on the job, which is that of its most severe reason"),
    gauge("fraud_reason_since_timestamp_seconds", "time at which a reason began to hold; only for reasons "
          "that hold now", ("code",)),
    gauge("fraud_ready_check", "1 when the readiness check passes; 0 when it fails, or could not be "
          "evaluated", ("check",)),
    state_set("fraud_partition_verdict", "verdict on the partition; never `UNKNOWN`", _PLACE),
    gauge("fraud_partition_verdict_since_timestamp_seconds", "time at which the partition's verdict began to "
          "hold", _PLACE),
    gauge("fraud_limit_seconds", "upper limit that the sidecar has learned for a time: without a commit "
          "while records wait (`commit`), from a record's arrival to its commit (`latency`), of a producer's "
          "Kafka transaction that holds records back (`held`), between two heartbeats of the profile feed "
          "(`heartbeat`), of an epoch (`epoch`); and the one that is set for the age of a group's newest "
          "progress record (`silence`)", ("limit",)),
    counter("fraud_job_restarts", "instances of the job that took over since the sidecar's start"),
)
FEED = (
    gauge("fraud_profile_feed_timestamp_seconds", "Kafka timestamp of the newest record on the profile topic "
          "(`change`), and of Debezium's newest heartbeat (`heartbeat`); absent for a signal never seen",
          ("signal",)),
    gauge("fraud_profile_feed_age_seconds", "time since `fraud_profile_feed_timestamp_seconds`; in a replay "
          "with CreateTime the age of `change` is the archive's", ("signal",)),
)
GROUPS = (
    gauge("fraud_group_progress_age_seconds", "time since the newest commit", _GROUP),
    gauge("fraud_group_progress_timestamp_seconds", "time of the newest commit", _GROUP),
    gauge("fraud_group_commit_id", "number of the newest commit; each group numbers its commits 1, 2, ...",
          _GROUP),
    gauge("fraud_group_epoch", "number of the epoch of the newest commit", _GROUP),
    gauge("fraud_group_epoch_start_timestamp_seconds", "time at which the first commit of the running epoch "
          "was seen", _GROUP),
    gauge("fraud_group_epoch_age_seconds", "time since the first commit of the running epoch was seen, which "
          "is also the age of the newest checkpoint", _GROUP),
    gauge("fraud_group_commit_interval_seconds", "time between the newest commit and the previous one",
          _GROUP),
    gauge("fraud_group_phase_seconds", "time spent in a phase from the previous commit to the newest one",
          (*_GROUP, "phase")),
    gauge("fraud_group_table_lag_records", "records of the tables that the group still has to read before it "
          "decides; 0 once they are loaded", _GROUP),
)
JOB = (
    gauge("fraud_key_groups", "key groups of the job"),
    info("fraud_job", "the job, its query, and the release that decides; several during an upgrade",
         ("job_id", "query_id", "release")),
    info("fraud_model", "the champion when the group last decided", (*_GROUP, "name", "version", "digest")),
    info("fraud_rollout", "the champion's rollout when the group last decided", (*_GROUP, "rollout_id")),
    gauge("fraud_rollouts_set_aside", "rollouts that the group cannot use and that are newer than the newest "
          "one that it uses (`/v1/progress` has the reasons); all groups should have the same number",
          _GROUP),
    histogram("fraud_score", "scores of the model that decided, champion or canary"),
    gauge("fraud_state_cards", "cards in the state"),
    gauge("fraud_state_cards_without_profile", "cards in the state without a profile; if more are added than "
          "there are new customers, a producer sends invented card ids"),
    gauge("fraud_state_events", "transactions kept in the state"),
    gauge("fraud_state_bytes", "bytes of the working copies of the state"),
)
ROLLOUTS = (
    state_set("fraud_rollout_phase", "phase of the rollout", ("rollout_id",)),
    gauge("fraud_rollout_applied_seq", "number of the rollout's last event that the group has applied; 0 if "
          "it has applied none yet, and another group has", (*_GROUP, "rollout_id")),
    counter("fraud_trial_transactions", "transactions given to the challenger to score", _TRIAL),
    counter("fraud_trial_decided", "transactions decided by the challenger, as canary", _TRIAL),
    counter("fraud_trial_failures", "transactions given to the challenger for which it returned no score",
            _TRIAL),
    counter("fraud_trial_rows", "rows given to the challenger's model: one for each transaction", _TRIAL),
    counter("fraud_trial_verdicts", "transactions for which `both`, `only_champion` or `only_challenger` "
            "would alert", (*_TRIAL, "alerted")),
    gauge("fraud_trial_card_hours", "card-hours with alerts of `both`, `only_champion` or `only_challenger`",
          (*_TRIAL, "alerted")),
    gauge("fraud_trial_cards", "cards with alerts of `both`, `only_champion` or `only_challenger`",
          (*_TRIAL, "alerted")),
    counter("fraud_trial_scoring_seconds", "time that the `challenger` and the `champion` took to score the "
            "same rows", (*_TRIAL, "role")),
    histogram("fraud_trial_score", "scores that the `challenger` and the `champion` gave to the same "
              "transactions", (*_TRIAL, "role")),
    gauge("fraud_trial_labelled_cards", "cards on which the model of the `role` alerted in the trial, by the "
          "label (`fraud`, `genuine`) of its first labelled alert on the card; a gauge, because labels may "
          "be revoked, and absent without the guard `precision`", (*_TRIAL, "role", "outcome")),
    state_set("fraud_guard_verdict", "`pass`, `breach` or `insufficient`; of the rollout whose guards were "
              "watched last", (*_TRIAL, "guard")),
)
QUALITY = (
    gauge("fraud_alert_outcomes", "alerts of the last 130 days by the last label of their transaction: "
          "`fraud`, `genuine`, or none yet (`open`); for each rule, model version and rollout (`by`, "
          "`name`), of which the 50 with the newest alerts are exported; a gauge, as labels may be revoked",
          ("by", "name", "outcome")),
    gauge("fraud_feature_psi", "population stability index of a feature of the champion: its distribution in "
          "the `window` (since the model became `champion`, or the `recent` two clock hours) against that in "
          "training; absent below 500 transactions, for features of the calendar, and for models without "
          "bins", ("feature", "window")),
    gauge("fraud_feature_psi_transactions", "number of transactions from which `fraud_feature_psi` is "
          "computed; one in eight of the champion's transactions is counted", ("window",)),
)
SIDECAR = (
    counter("fraud_sidecar_http_requests", "requests answered; `route` is the route's template, or "
            "`unmatched`", ("method", "route", "status")),
    histogram("fraud_sidecar_http_request_duration_seconds", "time from a request to the end of its response",
              ("route",)),
    gauge("fraud_sidecar_broker_up", "1 when the broker answered the sidecar's last query"),
    gauge("fraud_sidecar_progress_complete", "1 when progress has been read to its end; the job's counters "
          "are absent before the first time"),
    counter("fraud_sidecar_progress_unreadable", "records of the job on its progress topic that were not "
            "valid progress, since the sidecar's start"),
)
# fmt: on

SECTIONS = {
    "Work done": WORK,
    "Time": TIME,
    "Lag, by the broker's offsets": LAG,
    "Verdicts": VERDICTS,
    "The feed of profiles": FEED,
    "The key groups, each by its newest Kafka transaction": GROUPS,
    "The job as it is": JOB,
    "Rollouts": ROLLOUTS,
    "Alerts by label, drift of features": QUALITY,
    "The sidecar itself": SIDECAR,
}
"""Families by heading in docs/metrics.md."""
FAMILIES = {family.name: family for section in SECTIONS.values() for family in section}
"""Families by name."""

"""Cases of the alerts about the job as a whole, and about the feed of profiles."""

from harness.alert_cases.input import JOB_ONLY, counts
from harness.promtool import Case, Clock, Gone, Series, Slope

GROUP = {"key_group": "1"}
AGE = 'fraud_group_progress_age_seconds{key_group="%d"}'
EPOCH = 'fraud_group_epoch_age_seconds{key_group="%d"}'
LOADING = 'fraud_group_table_lag_records{key_group="%d"}'
FEED = 'fraud_profile_feed_age_seconds{signal="%s"}'
FEED_TIME = 'fraud_profile_feed_timestamp_seconds{signal="%s"}'
COMMITTED = 'fraud_group_progress_timestamp_seconds{key_group="%d"}'
NEWEST = 'fraud_partition_event_time_timestamp_seconds{topic="transactions",partition="%d"}'
LIMIT = 'fraud_limit_seconds{limit="%s"}'


def since(code: str, ahead_s: float) -> Series:
    """Start of a reason: `ahead_s` seconds after the time of each sample, so negative for the past."""
    return {f'fraud_reason_since_timestamp_seconds{{code="{code}"}}': Clock(ahead_s)}


CASES = (
    Case(
        "FraudJobReason",
        since("feed_silent", -1000),
        since("group_missing", -70),
        fires_after=0,
        quiet_after=5,
        labels={"code": "group_missing"},
        almost=[
            since("group_missing", -59),
            since("checkpoint_old", -700),
            since("rollouts_set_aside", -700),
        ],
    ),
    *(
        Case("FraudJobReason", {}, since(code, -599), 0, 5, {"code": code})
        for code in ("topic_missing", "no_progress", "group_stalled")
    ),
    Case(
        "FraudGroupSilent",
        {AGE % 0: 5, AGE % 1: 5, LIMIT % "silence": 30},
        {AGE % 1: 40},
        fires_after=1,
        quiet_after=0,
        labels=GROUP,
        almost=[{AGE % 1: 29}],
    ),
    Case(
        "FraudNotReady",
        {'fraud_ready_check{check="broker"}': 1, 'fraud_ready_check{check="tables"}': 1},
        {'fraud_ready_check{check="tables"}': 0},
        fires_after=5,
        quiet_after=0,
        labels={"check": "tables"},
    ),
    Case(
        "FraudJobRestarts",
        counts(job_restarts=0),
        counts(job_restarts=0.5),
        fires_after=6,
        quiet_after=23,
        almost=[counts(job_restarts=0.09)],
        before=31,
        after=40,
    ),
    Case(
        "FraudTablesLoad",
        {LOADING % 0: 0, LOADING % 1: 0},
        {LOADING % 1: 5},
        fires_after=10,
        quiet_after=0,
        labels=GROUP,
    ),
    Case(
        "FraudCheckpointOld",
        {EPOCH % 0: 20, EPOCH % 1: 20, LIMIT % "epoch": 300, LIMIT % "heartbeat": 10},
        {EPOCH % 1: 310},
        fires_after=1,
        quiet_after=0,
        labels=GROUP,
        almost=[{EPOCH % 1: 290}],
    ),
    Case(
        "FraudStateRebuilt",
        {**counts(state_rebuilds=0), "fraud_key_groups": 2},
        counts(state_rebuilds=1),
        fires_after=6,
        quiet_after=53,
        almost=[{**counts(state_rebuilds=0.6), "fraud_key_groups": 20}, counts(state_rebuilds=0.095)],
        before=61,
        after=60,
    ),
    Case(
        "FraudStateGrows",
        {"fraud_state_bytes": 2e9},
        {"fraud_state_bytes": 4e9},
        fires_after=6,
        quiet_after=0,
        # 1: increased by less than half; 2: decreased
        almost=[{"fraud_state_bytes": 2.9e9}, {"fraud_state_bytes": 9e8}],
        before=300,
        during=40,
        after=20,
        step="5m",
    ),
    Case(
        "FraudStateGrows",
        {"fraud_state_bytes": 1e8},
        {"fraud_state_bytes": 1.1e9},
        fires_after=6,
        quiet_after=0,
        almost=[{"fraud_state_bytes": 9e8}],
        before=300,
        during=40,
        after=20,
        step="5m",
    ),
    Case(
        "FraudStrangers",
        {"fraud_state_cards_without_profile": 900, "fraud_state_cards": 10_000},
        {"fraud_state_cards_without_profile": 4_000, "fraud_state_cards": 13_000},
        fires_after=2,
        quiet_after=0,
        almost=[{"fraud_state_cards_without_profile": 2_800}],
        before=90,
        during=40,
        after=80,
        step="5m",
    ),
    Case(
        "FraudClockSkew",
        {COMMITTED % 0: Clock(-3), COMMITTED % 1: Clock(-3)},
        {COMMITTED % 1: Clock(8)},
        fires_after=1,
        quiet_after=0,
        labels=GROUP,
        select={"clock": "job"},
        almost=[{COMMITTED % 1: Clock(4)}],
    ),
    Case(
        "FraudClockSkew",
        {FEED_TIME % "heartbeat": Clock(-3), FEED_TIME % "change": Clock(-300)},
        {FEED_TIME % "heartbeat": Clock(8)},
        fires_after=1,
        quiet_after=0,
        labels={"signal": "heartbeat"},
        select={"clock": "broker"},
        almost=[{FEED_TIME % "heartbeat": Clock(4)}],
    ),
    Case(
        "FraudClockSkew",
        {NEWEST % 0: Clock(-3), NEWEST % 1: Clock(-3)},
        {NEWEST % 1: Clock(90)},
        fires_after=1,
        quiet_after=0,
        labels={"topic": "transactions", "partition": "1"},
        select={"clock": "senders"},
        almost=[{NEWEST % 1: Clock(59)}],
    ),
    Case(
        "FraudProfileFeedSilent",
        {FEED % "heartbeat": 4, FEED % "change": 4_000, LIMIT % "heartbeat": 60, LIMIT % "epoch": 10},
        {FEED % "heartbeat": 70},
        fires_after=1,
        quiet_after=0,
        labels={"signal": "heartbeat"},
        almost=[{FEED % "heartbeat": 59}, {FEED % "heartbeat": Gone()}],
    ),
    Case(
        "FraudProfilesQuiet",
        {FEED % "heartbeat": 4, FEED % "change": 4_000},
        {FEED % "change": 90_000},
        fires_after=10,
        quiet_after=0,
        labels={"signal": "change"},
        almost=[{FEED % "change": 86_000}, {FEED % "heartbeat": 90_000}],
    ),
    Case(
        "FraudProfilesMissing",
        counts(missing_profile=1, transactions=100),
        counts(missing_profile=50),
        fires_after=41,
        quiet_after=18,
        labels=JOB_ONLY,
        almost=[{"fraud_missing_profile_total": Slope(19)}],
        before=31,
        during=70,
        after=70,
    ),
)

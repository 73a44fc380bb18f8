"""Cases of the alerts about the job's inputs: lag, verdicts, dead letters."""

from collections.abc import Mapping

from harness.promtool import Case, Series, Slope

PLACE = {"topic": "transactions", "partition": "1"}
JOB_ONLY = {"instance": ""}


def verdict(now: str, partition: int = 1) -> Series:
    """The state set of one partition."""
    name = "fraud_partition_verdict"
    return {
        f'{name}{{topic="transactions",partition="{partition}",{name}="{other}"}}': float(other == now)
        for other in ("IDLE", "OK", "WARN", "BLOCKED", "STALL", "REWIND", "STOP")
    }


def of_verdict(alert: str, now: str, fires: int, quiet: int, **more: int) -> Case:
    """An alert on one verdict; no other verdict makes it fire."""
    others = [
        verdict(other) for other in ("IDLE", "WARN", "BLOCKED", "STALL", "REWIND", "STOP") if other != now
    ]
    labels = {**PLACE, "fraud_partition_verdict": now}
    good = {**verdict("OK"), **verdict("OK", 0)}
    return Case(alert, good, verdict(now), fires, quiet, labels, others, **more)


def lag(*seconds: float) -> Series:
    """Lag of the partitions 0, 1, ..."""
    return {
        f'fraud_partition_lag_seconds{{topic="transactions",partition="{number}"}}': wait
        for number, wait in enumerate(seconds)
    }


def counts(**per_minute: float) -> Series:
    """Counters by their names without `fraud_` and `_total`, each with its growth in a step."""
    return {f"fraud_{name}_total": Slope(slope) for name, slope in per_minute.items()}


def letters(**per_minute: float) -> Mapping[str, Slope]:
    """Counters of dead letters by reason, each with its growth in a step."""
    return {
        f'fraud_dead_letters_total{{reason="{reason}"}}': Slope(slope) for reason, slope in per_minute.items()
    }


def of_input(name: str, *, records: float, dead: float) -> Mapping[str, Slope]:
    """Counters of one input, each with its growth in a step."""
    return {
        f'fraud_input_records_total{{input="{name}"}}': Slope(records),
        f'fraud_input_dead_letters_total{{input="{name}"}}': Slope(dead),
    }


LOST = 'fraud_partition_lost_records{topic="transactions",partition="1"}'
COME, CEASE = (of_input("transactions", records=number, dead=0) for number in (600, 0))
PROFILE_LETTERS = 'fraud_input_dead_letters_total{input="profiles"}'

CASES = (
    Case(
        "FraudLogLost", {LOST: 0}, {LOST: 3}, fires_after=1, quiet_after=0, labels=PLACE, almost=[{LOST: 0}]
    ),
    of_verdict("FraudPartitionStopped", "STOP", fires=1, quiet=0),
    of_verdict("FraudPartitionStalled", "STALL", fires=1, quiet=0),
    of_verdict("FraudPartitionRewound", "REWIND", fires=0, quiet=5),
    of_verdict("FraudPartitionBlocked", "BLOCKED", fires=1, quiet=0),
    of_verdict("FraudPartitionFallsBehind", "WARN", fires=5, quiet=0),
    Case(
        "FraudPartitionBehindOthers",
        lag(2, 2, 2, 2),
        lag(2, 100, 2, 2),
        fires_after=2,
        quiet_after=0,
        labels=PLACE,
        # 1: below 30 s; 2: all are behind alike; 3: below five times the mean of the others
        almost=[lag(2, 29, 2, 2), lag(100, 120, 90, 100), lag(30, 140, 30, 30)],
    ),
    Case(  # two partitions
        "FraudPartitionBehindOthers",
        lag(2, 2),
        lag(2, 100),
        fires_after=2,
        quiet_after=0,
        labels=PLACE,
        almost=[lag(30, 140), lag(100, 120)],
    ),
    Case(
        "FraudStuck",
        {**counts(records=600), "fraud_lag_records": 3},
        {**counts(records=0), "fraud_lag_records": 3},
        fires_after=2,
        quiet_after=0,
        almost=[{**counts(records=0), "fraud_lag_records": 0}, counts(records=1)],
    ),
    Case(
        "FraudInputQuiet",
        {**COME, "fraud_lag_seconds": 0},
        {**CEASE, **of_input("profiles", records=5, dead=0), "fraud_lag_seconds": 2},
        fires_after=7,
        quiet_after=0,
        labels={"input": "transactions"},
        almost=[{**CEASE, "fraud_lag_seconds": 100}, of_input("transactions", records=1, dead=0)],
        before=300,
        during=30,
        after=10,
        step="5m",
    ),
    Case(  # it also fires if only few records arrived the day before
        "FraudInputQuiet",
        {**of_input("transactions", records=1, dead=0), "fraud_lag_seconds": 0},
        CEASE,
        fires_after=7,
        quiet_after=0,
        labels={"input": "transactions"},
        before=300,
        during=30,
        after=10,
        step="5m",
    ),
    Case(
        "FraudWatermarkStuck",
        {**counts(transactions=600), "fraud_watermark_age_seconds": 3},
        {"fraud_watermark_age_seconds": 700},
        fires_after=5,
        quiet_after=0,
        almost=[
            {"fraud_watermark_age_seconds": 599},
            {**counts(transactions=0), "fraud_watermark_age_seconds": 700},
        ],
    ),
    Case(
        "FraudOutOfOrder",
        counts(late=10, transactions=100),
        counts(late=40),
        fires_after=20,
        quiet_after=9,
        labels=JOB_ONLY,
        almost=[counts(late=19)],
        before=20,
        during=40,
        after=30,
    ),
    Case(
        "FraudInputRepeats",
        counts(duplicates=1, records=100),
        counts(duplicates=20),
        fires_after=18,
        quiet_after=11,
        labels=JOB_ONLY,
        almost=[counts(duplicates=4.9)],
        before=20,
        during=40,
        after=30,
    ),
    Case(
        "FraudDeadLetters",
        {**counts(records=100), **letters(too_late=0.2, wrong_type=0)},
        letters(wrong_type=4),
        fires_after=7,
        quiet_after=7,
        labels={**JOB_ONLY, "reason": "wrong_type"},
        almost=[letters(too_late=0.9, wrong_type=0.9, label_too_old=50)],
        before=20,
        during=40,
        after=30,
    ),
    Case(
        "FraudProfilesRefused",
        {PROFILE_LETTERS: Slope(0)},
        {PROFILE_LETTERS: Slope(1)},
        fires_after=0,
        quiet_after=14,
        labels=JOB_ONLY,
        almost=[{'fraud_input_dead_letters_total{input="labels"}': Slope(9)}],
    ),
    Case(
        "FraudProfilesIgnored",
        counts(ignored_profile_changes=1, profile_changes=100),
        counts(ignored_profile_changes=90),
        fires_after=26,
        quiet_after=13,
        labels=JOB_ONLY,
        almost=[counts(ignored_profile_changes=49)],
        before=40,
        during=60,
        after=40,
    ),
    Case(
        "FraudDeadLetterFlood",
        {**counts(records=100), **letters(too_late=1, wrong_type=0)},
        letters(too_late=25, wrong_type=25),
        fires_after=2,
        quiet_after=4,
        labels=JOB_ONLY,
        almost=[letters(too_late=5, wrong_type=4.5), letters(label_too_old=90)],
    ),
    Case(
        "FraudMostlyDeadLetters",
        {**of_input("profiles", records=10, dead=0), **of_input("transactions", records=600, dead=1)},
        of_input("profiles", records=10, dead=6),
        fires_after=5,
        quiet_after=0,
        labels={**JOB_ONLY, "input": "profiles"},
        # 1: half of them; 2: all of them, but too few
        almost=[of_input("profiles", records=10, dead=4.9), of_input("profiles", records=0.7, dead=0.7)],
    ),
    Case(
        "FraudRetiredTopic",
        letters(retired_topic=0),
        letters(retired_topic=1),
        fires_after=0,
        quiet_after=14,
        labels=JOB_ONLY,
        almost=[letters(wrong_partition=9)],
    ),
    Case(
        "FraudForeignFacts",
        counts(foreign_facts=0),
        counts(foreign_facts=1),
        fires_after=0,
        quiet_after=14,
        during=20,
        after=20,
    ),
)

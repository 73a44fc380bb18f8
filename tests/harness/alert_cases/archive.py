"""Cases of the alerts from the archiver."""

from harness.promtool import Case, Clock, Gone

HERE = {"job": "card-fraud-archive", "instance": "archive:9110"}
UNTIL = "fraud_archive_timestamp_seconds{" + ",".join(f'{key}="{value}"' for key, value in HERE.items()) + "}"

CASES = (
    *(
        Case(
            alert,
            {UNTIL: Clock(-300)},
            {UNTIL: Clock(-limit_s - 60)},
            fires_after=1,
            quiet_after=0,
            labels=HERE,
            almost=[{UNTIL: Clock(-limit_s + 60)}],
        )
        for alert, limit_s in (("FraudArchiveOld", 3_600), ("FraudArchiveEndangered", 172_800))
    ),
    Case(  # an archiver that does not answer any more
        "FraudArchiveOld",
        {UNTIL: Clock(-300)},
        {UNTIL: Gone()},
        fires_after=56,
        quiet_after=0,
        labels=HERE,
        quiet_without=False,
        during=70,
    ),
)

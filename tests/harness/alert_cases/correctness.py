"""Cases of the alerts from the continuous audit."""

from harness.promtool import Case, Clock, Gone, Slope

HERE = {"job": "card-fraud-audit", "instance": "audit:8001"}
OF = "{" + ",".join(f'{key}="{value}"' for key, value in HERE.items()) + "}"
KINDS = ("missing", "duplicated", "unexpected", "different")


def count(kind: str) -> str:
    """The series of one counter."""
    return f"fraud_audit_{kind}_total{OF}"


CASES = (
    *(
        Case(
            f"FraudAlerts{kind.capitalize()}",
            {count(other): Slope(0) for other in KINDS},
            {count(kind): Slope(1)},
            fires_after=0,
            quiet_after=14,
            labels=HERE,
            almost=[{count(other): Slope(1) for other in KINDS if other != kind}],
            after=30,
        )
        for kind in KINDS
    ),
    *(  # the first finding creates the counter, which then stays at 1
        Case(
            f"FraudAlerts{kind.capitalize()}",
            {},
            {count(kind): 1},
            fires_after=0,
            quiet_after=0,
            labels=HERE,
            almost=[{count(kind): 0}],
            during=15,
        )
        for kind in KINDS
    ),
    Case(
        "FraudAuditOld",
        {f"fraud_audit_timestamp_seconds{OF}": Clock(-120)},
        {f"fraud_audit_timestamp_seconds{OF}": Clock(-700)},
        fires_after=1,
        quiet_after=0,
        labels=HERE,
        almost=[{f"fraud_audit_timestamp_seconds{OF}": Clock(-590)}],
        quiet_without=False,
    ),
    Case(  # an audit that does not answer any more
        "FraudAuditOld",
        {f"fraud_audit_timestamp_seconds{OF}": Clock(-120)},
        {f"fraud_audit_timestamp_seconds{OF}": Gone()},
        fires_after=9,
        quiet_after=0,
        labels=HERE,
        quiet_without=False,
        during=25,
    ),
)

from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import pytest

from loadtests.audit.findings import Findings
from loadtests.audit.verify import AuditResult
from loadtests.locust_run.plan import LoadTestPlan
from loadtests.locust_run.result import Result
from loadtests.locust_run.verdict import Audit, Bounds, audited, failures
from loadtests.oracle import Kind

pytestmark = pytest.mark.unit
GOOD = Result(
    asdict(LoadTestPlan()), 1, offered_rate=1_000.0, achieved_rate=999.0, events=60_000, acknowledged=60_000,
    alerts_seen=600, latency_ms={"p50": 10.0, "p99": 20.0}, latencies=590, slip_ms={"p99": 1.0},
    backlog_at_end=100, drained_s=0.4,
)  # fmt: skip
CLEAN = Audit(60_000, 600, 0, 0, 0)


def test_transactions_before_the_load_test_are_audited_but_not_counted() -> None:
    kinds = Counter({Kind.PASSED: 63_360, Kind.ALERT: 640})
    verdict = AuditResult(Findings(), kinds, records=Counter(fraud_alerts=640))
    assert Audit.of(verdict, 4_000, 40) == CLEAN


def test_a_good_run_passes() -> None:
    assert failures(GOOD, Bounds(p99_ms=20.0)) == audited(GOOD, CLEAN, own_topics=True) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fault": "broker gone"}, "fault: broker gone"),
        ({"lost_workers": ["w-1: no heartbeat"]}, "worker lost: w-1"),
        ({"achieved_rate": 980.0}, "achieved rate: 980 of 1,000"),
        ({"achieved_rate": 0.0}, "achieved rate: 0 of 1,000"),
        ({"slip_ms": {"p99": 5.1}}, "generator's slip: p99 5.1 ms"),
        ({"slip_ms": {}}, "generator's slip: p99 not measured"),
        ({"unsent": 1}, "unsent: 1 "),
        ({"backlog_at_end": 2_001}, "backlog: the job was 2,001"),
        ({"backlog_at_end": None}, "backlog: not known"),
        ({"drained_s": None}, "backlog: the job did not decide"),
        ({"latency_ms": {}}, "latency: no alert"),
        ({"latency_ms": {"p99": 20.5}}, "latency: p99 20.5 ms"),
        ({"acknowledged": 60_001}, "not audited: 60,001"),
        ({"alerts_seen": 599}, "unseen: 600 alerts had to be"),
    ],
)
def test_each_condition_fails_alone_and_is_named(change: dict[str, Any], said: str) -> None:
    bad = replace(GOOD, **change)
    result = [*failures(bad, Bounds(p99_ms=20.0)), *audited(bad, CLEAN, own_topics=True)]
    assert len(result) == 1
    assert result[0].startswith(said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"missing": 1}, "missing: 1 "),
        ({"duplicated": 2}, "duplicated: 2 "),
        ({"unexpected": 3}, "unexpected: 3 "),
        (
            {"problems": ("totals differ",)},
            "progress records: the audit found an inconsistency: totals differ",
        ),
    ],
)
def test_each_finding_of_the_audit_fails_the_run(change: dict[str, Any], said: str) -> None:
    (failure,) = audited(GOOD, replace(CLEAN, **change), own_topics=True)
    assert failure.startswith(said)


def test_more_records_than_sent_are_allowed_on_shared_topics() -> None:
    shared = replace(CLEAN, events=1_000_000, alerts=9_000)
    assert audited(GOOD, shared, own_topics=False) == []

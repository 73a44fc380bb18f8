"""A load test of a real job, and two audits of its log; one job serves all."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.followed_audit import alerts_of, copied_without_the_third, followed, scraped, write
from harness.light_load import BUSY, light
from harness.logins import logged_in, without_login
from thoroughness import only_thorough

from deploy.local.stack import Endpoints
from loadtests.audit import endless, one_alert
from loadtests.audit.topic_log import TopicLog
from loadtests.faults.installation import Installation
from loadtests.faults.job_process import JobProcess
from loadtests.locust_run import identity
from loadtests.locust_run.launch import LocustProcesses
from loadtests.locust_run.result import HISTOGRAMS
from loadtests.locust_run.verdict import Audit, audited, failures
from loadtests.rig import histograms
from loadtests.rig.send import INTENDED_AT
from models import loading
from streaming_job.contracts.topic import Component

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), only_thorough]
WaitFor = Callable[..., object]
FOUND_WITHIN_S = 120.0
DECIDED = 2_000
"""The least number of transactions that `warm_job` has decided."""


def test_all_alerts_of_a_run_are_seen(installed: Installation, warm_job: JobProcess, tmp_path: Path) -> None:
    plan = light(tmp_path / "run")
    settings = without_login(installed)
    log = TopicLog(settings.bootstrap_servers, settings.kafka)
    before = Audit.of(installed.verdict())
    with LocustProcesses(plan, settings, 2) as run:
        result = run.wait()
    audit = Audit.of(installed.verdict(), before.events, before.alerts)
    assert [*failures(result, BUSY), *audited(result, audit, own_topics=True)] == []
    assert result.workers == 2
    assert result.events == result.acknowledged == audit.events
    assert result.latencies > 0
    # a transaction arrives after it was due; Kafka's timestamps are whole milliseconds
    assert 0 < result.arrival_ms["p50"] < result.latency_ms["p50"] + 1.5
    logged = histograms.read_log(Path(plan.directory) / HISTOGRAMS)
    assert logged.get_total_count() == result.latencies
    _require_headers(log, installed.topics.transactions, result.events)


def _require_headers(log: TopicLog, topic: str, events: int) -> None:
    """Check that the due times in header and identifier differ by the same start time in all records."""
    starts, count = set(), 0
    for record in log.read(topic):
        headers = dict(record.headers)
        if INTENDED_AT in headers:
            count += 1
            digits = (record.value or b"").split(b'"transaction_id":"')[1][:32].decode()
            decoded = identity.decode(digits, digits[:8])
            assert decoded is not None
            starts.add(int(headers[INTENDED_AT]) - decoded.due_us)
    assert count == events
    assert len(starts) == 1


def test_a_lost_and_a_duplicated_alert_are_each_found_once_within_two_minutes(
    stack: Endpoints, installed: Installation, warm_job: JobProcess, wait_for: WaitFor, tmp_path: Path
) -> None:
    settings = copied_without_the_third(stack, installed, "copied")
    topic, state = settings.topics.fraud_alerts, tmp_path / "state"
    plan = endless.EndlessOptions(share=1.0, behind_s=10.0, every_s=1.0, state=state, metrics_port=0)
    with followed(settings, plan) as address:
        wait_for(
            lambda: scraped(address, topic)["fraud_audit_missing_total"] == 1,
            deadline_s=FOUND_WITHIN_S,
            what="the lost alert",
        )
        write(stack, topic, [alerts_of(settings)[5]])
        wait_for(
            lambda: scraped(address, topic)["fraud_audit_duplicated_total"] == 1,
            deadline_s=FOUND_WITHIN_S,
            what="the doubled alert",
        )
        samples = scraped(address, topic)
    assert samples["fraud_audit_missing_total"] == 1
    assert samples["fraud_audit_unexpected_total"] == samples["fraud_audit_different_total"] == 0
    assert samples["fraud_audit_checked_total"] > DECIDED / 2
    assert 0 < samples["fraud_audit_timestamp_seconds"] < time.time()
    assert 0 <= samples["fraud_audit_lag_seconds"] < FOUND_WITHIN_S

    with followed(settings, plan) as address:
        write(stack, topic, [alerts_of(settings)[0]])
        wait_for(
            lambda: scraped(address, topic)["fraud_audit_duplicated_total"] == 1,
            deadline_s=FOUND_WITHIN_S,
            what="the doubled alert after a restart",
        )
        samples = scraped(address, topic)
    assert samples["fraud_audit_missing_total"] == samples["fraud_audit_checked_total"] == 0


def test_alerts_of_a_real_job_are_recomputed_byte_for_byte(
    installed: Installation, warm_job: JobProcess
) -> None:
    settings = logged_in(installed, Component.AUDIT)
    log = TopicLog(settings.bootstrap_servers, settings.kafka)
    directory = settings.work_dir / "models"
    sample = alerts_of(settings)[::400]
    assert sample
    for alert in sample:
        rebuilt = one_alert.rebuild(
            log,
            settings,
            lambda ref: loading.load(ref, settings.mlflow_tracking_uri, directory),
            json.loads(alert.value or b"")["alert_id"],
        )
        assert rebuilt.is_clean, rebuilt.report()

"""The continuing audit of a real job's log: it finds a lost and a duplicated alert and exports both."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from thoroughness import only_thorough

from deploy.local import topics as broker
from deploy.local.ports import HOST, free_port
from deploy.local.stack import Endpoints
from deploy.prometheus import server
from loadtests.audit import endless, one_alert
from loadtests.audit.judging import from_registry
from loadtests.audit.topic_log import TopicLog
from loadtests.faults.http_servers import get, running
from loadtests.faults.installation import Installation
from loadtests.oracle import Record
from models import loading
from streaming_job.settings import JobSettings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
WaitFor = Callable[..., object]
FOUND_WITHIN_S = 120.0
SENT = 2_000


@pytest.fixture(scope="module")
def settings(stack: Endpoints, installed: Installation) -> JobSettings:
    """Settings of a job whose alerts, except the third, were copied to a topic that tests write to."""
    with installed.start() as running:
        installed.send(SENT)
        installed.caught_up(running)
    return copied_without_the_third(stack, installed, "copied")


def copied_without_the_third(stack: Endpoints, installed: Installation, name: str) -> JobSettings:
    """Copy the job's alerts, except the third, to another topic; return settings with that topic."""
    topics = installed.topics.model_copy(update={"fraud_alerts": f"{installed.topics.fraud_alerts}-{name}"})
    copied = installed.settings.model_copy(update={"topics": topics})
    broker.create(stack.bootstrap_servers, topics)
    alerts = alerts_of(installed.settings)
    assert len(alerts) > 7
    write(copied, [*alerts[:2], *alerts[3:]])
    return copied


def alerts_of(settings: JobSettings) -> list[Record]:
    return list(TopicLog(settings.bootstrap_servers, settings.kafka).read(settings.topics.fraud_alerts))


def write(settings: JobSettings, alerts: list[Record]) -> None:
    """Append alerts unchanged, as another producer could."""
    producer = Producer({**settings.kafka, "bootstrap.servers": settings.bootstrap_servers})
    for alert in alerts:
        producer.produce(settings.topics.fraud_alerts, alert.value, alert.key, headers=list(alert.headers))
    assert producer.flush(30) == 0


@contextmanager
def followed(settings: JobSettings, plan: endless.Plan) -> Iterator[str]:
    """Run a continuing audit; yields the address of its metrics."""
    stop, ports = Event(), []
    log = TopicLog(settings.bootstrap_servers, settings.kafka)
    thread = Thread(
        target=endless.follow,
        args=(log, settings, from_registry(settings), plan, stop),
        kwargs={"started": ports.append},
    )
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not ports:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            stop.wait(0.1)
        yield f"http://127.0.0.1:{ports[0]}/metrics"
    finally:
        stop.set()
        thread.join()


def scraped(address: str, topic: str) -> dict[str, float]:
    """Samples by name: those without the label `topic`, and those of this topic."""
    with urlopen(address, timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            sample.name: sample.value
            for family in families
            for sample in family.samples
            if sample.labels.get("topic", topic) == topic
        }


def test_a_lost_and_a_duplicated_alert_are_each_found_once_within_two_minutes(
    settings: JobSettings, wait_for: WaitFor, tmp_path: Path
) -> None:
    topic, state = settings.topics.fraud_alerts, tmp_path / "state"
    plan = endless.Plan(share=1.0, behind_s=10.0, every_s=1.0, state=state, metrics_port=0)
    with followed(settings, plan) as address:
        wait_for(
            lambda: scraped(address, topic)["fraud_audit_missing_total"] == 1,
            deadline_s=FOUND_WITHIN_S,
            what="the lost alert",
        )
        write(settings, [alerts_of(settings)[5]])
        wait_for(
            lambda: scraped(address, topic)["fraud_audit_duplicated_total"] == 1,
            deadline_s=FOUND_WITHIN_S,
            what="the doubled alert",
        )
        samples = scraped(address, topic)
    assert samples["fraud_audit_missing_total"] == 1
    assert samples["fraud_audit_unexpected_total"] == samples["fraud_audit_different_total"] == 0
    assert samples["fraud_audit_checked_total"] > SENT / 2
    assert 0 < samples["fraud_audit_timestamp_seconds"] < time.time()
    assert 0 < samples["fraud_audit_lag_seconds"] < FOUND_WITHIN_S

    with followed(settings, plan) as address:
        write(settings, [alerts_of(settings)[0]])
        wait_for(
            lambda: scraped(address, topic)["fraud_audit_duplicated_total"] == 1,
            deadline_s=FOUND_WITHIN_S,
            what="the doubled alert after a restart",
        )
        samples = scraped(address, topic)
    assert samples["fraud_audit_missing_total"] == samples["fraud_audit_checked_total"] == 0


@contextmanager
def scraping(directory: Path, audit: str) -> Iterator[Callable[[], set[str]]]:
    """A Prometheus with the project's rules scrapes an audit; yields a function that names paging alerts."""
    targets, config, listen = directory / "audit.json", directory / "prometheus.yml", f"{HOST}:{free_port()}"
    targets.write_text(json.dumps([{"targets": [audit]}]))
    server.write_config(config, f"{HOST}:{free_port()}", audit=targets)  # no sidecar runs
    command = server.command(config, f"--storage.tsdb.path={directory / 'data'}", listen)

    def pages() -> set[str]:
        alerts = json.loads(get(f"http://{listen}/api/v1/alerts"))["data"]["alerts"]
        paging = [
            alert for alert in alerts if alert["state"] == "firing" and alert["labels"]["severity"] == "page"
        ]
        return {
            alert["labels"]["alertname"] for alert in paging if alert["labels"]["job"] == "card-fraud-audit"
        }

    with running(command, directory / "prometheus.log", {}, f"http://{listen}/-/ready"):
        yield pages


@only_thorough
@pytest.mark.skipif(not server.is_installed(), reason="needs prometheus: apt install prometheus")
def test_a_lost_and_a_doubled_alert_page_within_two_minutes(
    stack: Endpoints, installed: Installation, settings: JobSettings, wait_for: WaitFor, tmp_path: Path
) -> None:
    """With the defaults: the audit is a minute behind, scrapes are 5 s apart, rule evaluations 15 s."""
    copied = copied_without_the_third(stack, installed, "paged")
    plan = endless.Plan(share=1.0, metrics_port=0)
    with followed(copied, plan) as address, scraping(tmp_path, urlsplit(address).netloc) as pages:
        wait_for(
            lambda: "FraudAlertsMissing" in pages(), deadline_s=FOUND_WITHIN_S, what="the lost alert's page"
        )
        write(copied, [alerts_of(copied)[5]])
        wait_for(
            lambda: "FraudAlertsDuplicated" in pages(),
            deadline_s=FOUND_WITHIN_S,
            what="the doubled alert's page",
        )
        assert pages() == {"FraudAlertsMissing", "FraudAlertsDuplicated"}


def test_alerts_of_a_real_job_are_recomputed_byte_for_byte(
    installed: Installation, settings: JobSettings
) -> None:
    log = TopicLog(installed.settings.bootstrap_servers, installed.settings.kafka)
    directory = settings.work_dir / "models"
    for alert in alerts_of(installed.settings)[::400]:
        rebuilt = one_alert.rebuild(
            log,
            installed.settings,
            lambda ref: loading.load(ref, settings.mlflow_tracking_uri, directory),
            json.loads(alert.value or b"")["alert_id"],
        )
        assert rebuilt.is_clean, rebuilt.report()

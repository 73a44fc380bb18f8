"""A continuing audit beside a job, over copies of the job's alerts that tests can falsify."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from urllib.request import urlopen

from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from harness.logins import logged_in, without_login
from loadtests.audit import endless
from loadtests.audit.judging import from_registry
from loadtests.audit.topic_log import TopicLog
from loadtests.faults.installation import Installation
from loadtests.oracle import Record
from streaming_job.contracts.topic import Component
from streaming_job.settings import JobSettings


def copied_without_the_third(stack: Endpoints, installed: Installation, name: str) -> JobSettings:
    """Copy the job's alerts, except the third, to another topic; return settings for its audit."""
    topics = installed.topics.model_copy(update={"fraud_alerts": f"{installed.topics.fraud_alerts}-{name}"})
    broker.create(stack.bootstrap_servers, topics)
    alerts = alerts_of(without_login(installed))
    assert len(alerts) > 7
    write(stack, topics.fraud_alerts, [*alerts[:2], *alerts[3:]])
    return logged_in(installed, Component.AUDIT, topics=topics)


def alerts_of(settings: JobSettings) -> list[Record]:
    """Return the records on the topic of the alerts."""
    return list(TopicLog(settings.bootstrap_servers, settings.kafka).read(settings.topics.fraud_alerts))


def write(stack: Endpoints, topic: str, alerts: list[Record]) -> None:
    """Append alerts unchanged, as another producer could."""
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers})
    for alert in alerts:
        producer.produce(topic, alert.value, alert.key, headers=list(alert.headers))
    assert producer.flush(30) == 0


@contextmanager
def followed(settings: JobSettings, plan: endless.EndlessOptions) -> Iterator[str]:
    """Run a continuing audit, which must not fail; yields the address of its metrics."""
    stop, ports = Event(), list[int]()
    log = TopicLog(settings.bootstrap_servers, settings.kafka)
    with ThreadPoolExecutor(1) as thread:
        audit = thread.submit(
            endless.follow, log, settings, from_registry(settings), plan, stop, started=ports.append
        )
        try:
            deadline = time.monotonic() + 60
            while not ports:
                assert not audit.done()
                assert time.monotonic() < deadline
                stop.wait(0.1)
            yield f"http://127.0.0.1:{ports[0]}/metrics"
        finally:
            stop.set()
            audit.result()


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

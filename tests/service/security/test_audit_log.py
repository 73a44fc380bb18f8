"""The audit log against a real broker: transactions, pages, commands."""

import os
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from harness.local_client import LocalClient
from security_world import entry
from typer.testing import CliRunner

from deploy import cli
from deploy.local.stack import Endpoints
from service.app import create_app
from service.security import audit
from service.security.audit import AuditError
from service.security.audit_log import AuditLog, NoAuditError
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.integration
RECORDS = 30


def test_records_are_read_listed_and_verified(
    stack: Endpoints, topic_names: Callable[[], Topics], monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = topic_names()
    settings = ServiceSettings(bootstrap_servers=stack.bootstrap_servers, topics=topics)
    log = AuditLog(settings)
    assert (log.newest(5), list(log.all())) == ([], [])
    with pytest.raises(NoAuditError, match=f"topic {topics.audit_log} does not exist"):
        log.last()
    monkeypatch.setenv("FRAUD_BOOTSTRAP_SERVERS", stack.bootstrap_servers)
    admin, run = AdminClient({"bootstrap.servers": stack.bootstrap_servers}), CliRunner()
    for variable, name in (("LOG", topics.audit_log), ("REFUSALS", topics.audit_refusals)):
        monkeypatch.setenv(f"FRAUD_TOPICS__AUDIT_{variable}", name)
        missing = run.invoke(cli.app, ["audit", "--verify"]).exception
        assert isinstance(missing, AuditError)
        assert f"topic {name} does not exist" in str(missing)
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    assert (log.last(), log.newest(5), list(log.all())) == (None, [], [])  # it is empty
    producer = Producer(
        {"bootstrap.servers": stack.bootstrap_servers, "transactional.id": f"audit-{os.getpid()}"}
    )
    producer.init_transactions(30)

    def write(number: int, *, commit: bool = True) -> None:
        producer.begin_transaction()
        producer.produce(topics.audit_log, audit.next_record(log.last(), entry(number)))
        if commit:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)

    for number in range(RECORDS):
        write(1000 + number, commit=False)  # must never be read
        write(number)
    assert audit.verify([record.value for record in log.all()]).is_intact
    sidecar = LocalClient(create_app(settings))
    targets, before = [], ""
    while before is not None:
        page = sidecar.get(f"/v1/audit?limit=7{before}").json()
        targets += [record["record"]["target"] for record in page["records"]]
        before = None if page["next"] is None else f"&before={page['next']}"
    assert targets == [f"r-{number}" for number in reversed(range(RECORDS))]

    listed = run.invoke(cli.app, ["audit", "--limit", "3"]).stdout.splitlines()
    assert [f"r-{RECORDS - 1 - row}" in line for row, line in enumerate(listed)] == [True] * 3
    verified = run.invoke(cli.app, ["audit", "--verify"])
    assert f"{RECORDS} records" in verified.stdout
    head = verified.stdout.split("head ")[1].split()[0]
    write(RECORDS)
    assert run.invoke(cli.app, ["audit", "--verify", "--head", head]).exit_code == 0
    cut = run.invoke(cli.app, ["audit", "--verify", "--head", "0" * 64]).exception
    assert isinstance(cut, AuditError)
    # a stray record claims to follow a record in the middle of the log
    stray = Producer({"bootstrap.servers": stack.bootstrap_servers})
    stray.produce(topics.audit_log, audit.next_record(log.newest(9)[-1].value, entry(7)))
    assert stray.flush(30) == 0
    exception = run.invoke(cli.app, ["audit", "--verify"]).exception
    assert isinstance(exception, AuditError)
    assert "inserted" in str(exception)
    assert run.invoke(cli.app, ["audit", "--limit", "1", "--json"]).stdout.startswith("{")

"""Labels through a real job: merchant features and dead letters are the oracle's, whatever was killed."""

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from harness.job_world import DAY
from harness.labelled_world import labelled_world
from thoroughness import only_thorough

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from models.policy import Policy
from models.rollouts.events import installation
from models.rollouts.publishing import publish
from streaming_job.contracts import Contract, validate
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.labels import ledger
from streaming_job.labels.ledger import Ledger, LedgerError

pytestmark = [pytest.mark.integration, only_thorough, pytest.mark.timeout(900)]

RECORDS = 160


@pytest.fixture
def labelled(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """Topics that take the arrivals of an archive, and a policy by which everything is an alert."""
    topics, directory = topic_names(), tmp_path_factory.mktemp("labelled")
    made = Installation(stack, topics, directory, merchant_facts=True, label_delay_ms=DAY)
    broker.create(stack.bootstrap_servers, topics, replay=True)
    model, now = made.roll_out().model, int(time.time() * 1000)
    everything = installation(model, Policy(0.0, 10_000), "everything", "test", now)
    publish(everything, stack.bootstrap_servers, topics.model_rollouts)
    return made


def send(installed: Installation) -> None:
    """A log of weeks, with its arrivals, in their order."""
    world = labelled_world(0, RECORDS, 2)
    producer = Producer({"bootstrap.servers": installed.stack.bootstrap_servers})
    names = {
        "transactions": installed.topics.transactions,
        "labels": installed.topics.labels,
        "chargebacks": installed.topics.chargebacks,
    }
    for record in world.in_order():
        if record.topic in names:
            producer.produce(
                names[record.topic], record.value, record.key, record.partition, timestamp=record.timestamp
            )
    assert producer.flush(60) == 0
    installed.sent += len(world.transactions)


def test_labels_become_features_that_the_oracle_finds_too(labelled: Installation) -> None:
    send(labelled)
    with labelled.start() as job:
        while not labelled.commits() and job.runs:
            time.sleep(0.1)
        job.kill()
    with labelled.start() as job:
        labelled.caught_up(job)
        verdict = labelled.audit()
    assert {"unknown_transaction", "malformed_json"} <= verdict.dead_letters.keys()
    facts = [json.loads(record.value or b"") for record in labelled.read(labelled.topics.merchant_facts)]
    for fact in facts:
        validate(Contract.MERCHANT_FACT, fact)
    assert {fact["kind"] for fact in facts} == {"counts", "report", "promise"}
    said = {"transaction_id": "t0", "card_id": "c9", "kind": "refund", "source": "ada", "occurred_at": 1}
    writer = Ledger(labelled.stack.bootstrap_servers, {}, labelled.topics.labels)
    known = LetterSettings(bootstrap_servers=labelled.stack.bootstrap_servers, topics=labelled.topics)
    with pytest.raises(LedgerError, match="row 1"):
        writer.add([{**said, "maturity": "final"}, said])
    assert writer.add([{**said, "maturity": "final"}]) == 1
    assert [found["record"]["kind"] for found in ledger.of_card(known, "c9")] == ["refund"]
    alerts = labelled.read(labelled.topics.fraud_alerts)
    assert any(json.loads(one.value or b"")["features"]["merchant_streak"] for one in alerts)

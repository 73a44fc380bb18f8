"""Game days: the brokers do not answer, or a Kafka transaction on the input topic does not end.

Records after an open transaction are not decided.
"""

import json

from deploy.local import stack
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.scene import Scene
from loadtests.gamedays.sight import Expected, Sign
from streaming_job.log import clients
from streaming_job.log.clients import Address, Producer

NAME = "gameday-foreign-producer"
TIMEOUT_S = 30.0


def _producer(scene: Scene) -> Producer:
    """Create a producer with the transactional.id NAME; an open transaction under this id is aborted."""
    brokers = Address(scene.stack.bootstrap_servers)
    fixed: clients.Settings = {"transactional.id": NAME, "transaction.timeout.ms": 900_000}
    producer = clients.producer(brokers, fixed=fixed)
    producer.init_transactions(TIMEOUT_S)
    return producer


def _leave_a_transaction_open(scene: Scene) -> None:
    with scene.traffic.paused():
        producer = _producer(scene)
        producer.begin_transaction()
        for partition in scene.installed.ends(scene.installed.topics.transactions):
            value = json.dumps({"of": NAME}).encode()
            producer.produce(scene.installed.topics.transactions, value, b"foreign", partition)
        producer.flush(TIMEOUT_S)
    scene.referenced.append(producer)


TRANSACTION_HUNG = Gameday(
    name="transaction_hung",
    entries=("open_transaction",),
    symptom="A producer's transaction does not end",
    provoked_by="a foreign producer writes a record to each partition in a transaction, and does not end it",
    mended_by=(
        "a new producer is opened with the same transactional.id, so the brokers abort the open transaction"
    ),
    expected=Expected(
        codes=("open_transaction",),
        checks=("producers",),
        signs=(Sign("fraud_held_records", 1_000), Sign("fraud_lag_seconds", 60)),
        rules=("FraudPartitionBlocked", "FraudNotReady"),
    ),
    provoke=_leave_a_transaction_open,
    mend=_producer,
)


def _start_the_broker(scene: Scene) -> None:
    stack.up(scene.stack_dir)
    scene.caught_up()


BROKER_DOWN = Gameday(
    name="broker_down",
    entries=("broker_unreachable",),
    symptom="The brokers do not answer",
    provoked_by="SIGKILL to Kafka",
    mended_by="Kafka is started again; job and sidecar keep running",
    expected=Expected(
        codes=("broker_unreachable",),
        checks=("broker",),
        rules=("FraudBrokerUnreachable",),
    ),
    provoke=lambda scene: stack.kill(scene.stack_dir, "kafka"),
    mend=_start_the_broker,
)

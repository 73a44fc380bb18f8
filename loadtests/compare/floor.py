"""What Kafka's transactions alone cost: a bare loop of consume, produce, send offsets and commit.

It keeps no state, computes no features and answers a fixed share of the records, so it is no engine; it shows
which part of an engine's latency the client library and the broker have. Each process follows its share of
the partitions.
Argument: JSON, see `engines._floor`.
"""

import json
import signal
import sys
import time
from typing import Any

import orjson
from confluent_kafka import TopicPartition

from loadtests.compare.workers import run_all
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import Address

ANSWERED = 16
"""One of so many records is answered, by its offset: about as many as the job's alerts."""
LINGER_S = 0.001
"""How long a transaction waits for more records after its first one."""
COMMIT_S = 0.2
"""Interval of commits while nothing is to be answered."""
MOST = 10_000
PATIENCE_S = 60.0
TUNING: clients.Settings = {
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 1,
}
WRITING: clients.Settings = {
    "linger.ms": 0,
    # the broker often refuses the start of a Kafka transaction that soon follows another
    "retry.backoff.ms": 2,
    "retry.backoff.max.ms": 5,
}


def run(config: dict[str, Any], number: int) -> None:
    """Follow the partitions of a process until SIGTERM, which is no failure: nothing has to be saved."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    brokers, topic, alerts = Address(config["bootstrap_servers"]), config["transactions"], config["alerts"]
    identity = {"transactional.id": f"{config['group']}-{number}"}
    producer = clients.producer(brokers, tuning=WRITING, fixed=identity)
    producer.init_transactions(PATIENCE_S)
    consumer = clients.reader(brokers, config["group"], tuning=TUNING, fixed={"enable.partition.eof": False})
    partitions = topic_reader.partitions(consumer, topic, PATIENCE_S)[number :: config["processes"]]
    committed = consumer.committed([TopicPartition(topic, partition) for partition in partitions], PATIENCE_S)
    consumer.assign([TopicPartition(topic, part.partition, max(0, part.offset)) for part in committed])
    ends, last_commit = dict[int, int](), time.monotonic()
    while True:
        messages = consumer.consume(1, COMMIT_S)
        if messages:
            time.sleep(LINGER_S)
            messages += consumer.consume(MOST, 0)
        answers = []
        for message in messages:
            if message.error() is not None:
                continue  # transient: the client reconnects
            offset = message.offset() or 0
            ends[message.partition() or 0] = offset + 1
            if offset % ANSWERED == 0:
                answers.append(message)
        if not ends or not (answers or time.monotonic() - last_commit >= COMMIT_S):
            continue
        producer.begin_transaction()
        for message in answers:
            # by place, because the tape repeats some transactions, and each record is answered
            place = f"{message.partition()}-{message.offset()}"
            answer = {"transaction_id": place, "score": 0.0, "arrival_time": message.timestamp()[1]}
            producer.produce(alerts, orjson.dumps(answer), message.key())
        producer.flush(PATIENCE_S)
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, *end) for end in ends.items()],
            consumer.consumer_group_metadata(),
            PATIENCE_S,
        )
        producer.commit_transaction(PATIENCE_S)
        ends, last_commit = {}, time.monotonic()


if __name__ == "__main__":
    run_all(run, json.loads(sys.argv[1]))

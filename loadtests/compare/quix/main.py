"""The job on Quix Streams, in several processes of a consumer group. Argument: JSON, see `engines._quix`."""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Consumer, TopicPartition

from loadtests.compare.quix.deciding import Model, alert, decide
from loadtests.compare.quix.features import new_card
from loadtests.compare.workers import run_all

TIMEOUT_S = 30.0
POLL_S = 0.5
CARD = "card"


class Profiles:
    """The whole profile table in every process: read to its end at the start, then followed by a thread."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "compare-quix-profiles",  # never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        partitions = self._consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        assigned = [TopicPartition(topic, partition, 0) for partition in partitions]
        ends = {each.partition: self._consumer.get_watermark_offsets(each, TIMEOUT_S)[1] for each in assigned}
        self._consumer.assign(assigned)
        while any(end > self._at(topic, partition) for partition, end in ends.items()):
            self._read(POLL_S)
        threading.Thread(target=self._follow, name="profiles", daemon=True).start()

    def _at(self, topic: str, partition: int) -> int:
        (position,) = self._consumer.position([TopicPartition(topic, partition)])
        return max(0, int(position.offset))  # negative until something was read

    def _follow(self) -> None:
        while True:
            self._read(POLL_S)

    def _read(self, patience_s: float) -> None:
        for change in self._consumer.consume(10_000, patience_s):
            if change.error() is not None:
                continue  # transient: the client reconnects
            card = orjson.loads(change.key() or b"{}")["card_id"]
            row = orjson.loads(change.value() or b"{}").get("after")
            if row is None:
                self.rows.pop(card, None)
            else:
                self.rows[card] = row


def run(config: dict[str, Any], number: int) -> None:
    """Run one process until SIGTERM."""
    from quixstreams import Application  # installed only in the environment of venv.py

    model = Model(Path(config["model"]))
    profiles = Profiles(config["bootstrap_servers"], config["profiles"])
    app = Application(
        broker_address=config["bootstrap_servers"],
        consumer_group=config["group"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=Path(config["state_dir"]) / str(number),
        auto_create_topics=True,
        loglevel="WARNING",
        **config["settings"],
    )
    transactions = app.topic(config["transactions"], key_deserializer="str", value_deserializer="json")
    alerts = app.topic(config["alerts"], key_serializer="str", value_serializer="json")

    def alert_of(tx: dict[str, Any], key: Any, timestamp: int, headers: Any, state: Any) -> Any:
        tx["arrival"] = timestamp
        card = state.get(CARD) or new_card()
        decision = decide(model, card, tx, profiles.rows.get(tx["card_id"]))
        if decision is None:
            return None
        state.set(CARD, card)
        return alert(model, tx, decision) if decision["rules"] else None

    stream = app.dataframe(transactions)
    stream = stream.apply(alert_of, stateful=True, metadata=True)
    stream.filter(lambda value: value is not None).to_topic(alerts)
    app.run()


if __name__ == "__main__":
    run_all(run, json.loads(sys.argv[1]))

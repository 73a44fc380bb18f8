"""Framed transactions on a real broker: schemas come from a registry over HTTP, a key group decides.

registry   1 2 3 .................. 9
schemas    --1--2--------------------9-----------
records    ------ plain 1 2 9 broken ---- 9 ---- replayed 9 -----
group               decides | killed, opened again          audited: 0 missing, 0 different
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from click.testing import Result
from harness.framed_records import JSON_SCHEMA, RICH, avro, avro_schema, frame
from harness.job_world import LIMITS, PARTITIONER, World, load
from harness.schema_registry import Registry, served
from typer.testing import CliRunner

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from feature_store.archive.reader import Archive
from feature_store.archive.storage import Storage
from feature_store.catalogue import NAMES
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, load_meta, rebuild
from loadtests.audit.topic_log import TopicLog
from loadtests.audit.verify import verify
from loadtests.faults.record_producer import RecordProducer
from streaming_job.archive.archiver import Timing, archive
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.commands import app as dead_letters
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.group.connections import KafkaConnections
from streaming_job.group.opening import OpenGroup, Opening, begin
from streaming_job.group.rules import Rules
from streaming_job.log.partitioner import KeyGroups
from streaming_job.schemas.commands import app as schemas
from streaming_job.settings import JobSettings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TURNS = 2_000


class Bench:
    """A job's topics, with a key group that decides them in this process."""

    def __init__(self, settings: JobSettings) -> None:
        self.settings, self.pieces = settings, MemoryPieces()
        broker.create(settings.bootstrap_servers, settings.topics, partitions=1)
        self._producer = RecordProducer(settings.bootstrap_servers, PARTITIONER)
        for rollout in World().rollouts:
            self._producer.produce(settings.topics.model_rollouts, b"r1", rollout.value or b"", 0)
        self._producer.flush()
        self.opening = Opening(
            settings,
            Rules(settings.topics, KeyGroups(PARTITIONER, 1, 1), LIMITS, lambda ref: load(ref).on(NAMES)),
            0, "query", "instance",
        )  # fmt: skip
        with closing(KafkaConnections(self.opening)) as connections:
            begin(self.opening, connections, load_meta(self.pieces), self.pieces)

    def run(self, program: Any, *arguments: str, **variables: str) -> Result:
        """Run a command with the settings."""
        return CliRunner().invoke(program, arguments, env={**self.settings.variables(), **variables})

    def send(self, *values: bytes) -> None:
        """Write transactions."""
        for value in values:
            self._producer.produce(self.settings.topics.transactions, b"card", value, 0)
        self._producer.flush()

    def decide(self, *, is_killed: bool = False) -> None:
        """Open the group and decide all there is; a killed one is not saved."""
        pieces = MemoryPieces(self.pieces)
        state, meta = GroupState(MemoryArena()), load_meta(pieces)
        rebuild(pieces, meta, state)
        ends = TopicLog(self.settings.bootstrap_servers).ends(self.settings.topics.transactions)
        with closing(
            OpenGroup(self.opening, KafkaConnections(self.opening), state, meta, pieces, 0)
        ) as opened:
            opened.committer.begin()
            for _ in range(TURNS):
                opened.follower.advance(pieces)
                positions = opened.follower.cut(pieces)
                if positions[self.settings.topics.transactions, 0] == ends[0]:
                    break
        if not is_killed:
            self.pieces = pieces


@pytest.fixture
def bench(stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path) -> Bench:
    names = topic_names()
    own = {"profiles": f"{names.transactions}-profiles", "record_schemas": f"{names.transactions}-schemas"}
    topics = names.model_copy(update=own)
    return Bench(
        JobSettings(
            job_id=f"job-{topics.transactions}",
            bootstrap_servers=stack.bootstrap_servers,
            topics=topics,
            mlflow_tracking_uri="none",
            checkpoint="none",
            work_dir=tmp_path / "work",
            key_groups=1,
        )
    )


@pytest.fixture
def registry() -> Iterator[Registry]:
    with served(Registry("Basic dTpw")) as running:
        running.register("transactions-value", 1, avro_schema())
        running.register("transactions-value", 9, avro_schema())
        running.register("json/value", 2, JSON_SCHEMA, schemaType="JSON")
        running.register("other", 1, RICH)
        running.register("float", 3, avro_schema(amount="float"))
        running.register("parts", 4, RICH, references=[{"name": "a", "subject": "b", "version": 1}])
        running.register("proto", 5, {}, schemaType="PROTOBUF")
        yield running


def transaction(number: int, amount: float = 10.0) -> dict[str, Any]:
    return {
        "transaction_id": f"t{number}", "card_id": "card", "merchant_id": "m", "amount": amount,
        "currency": "EUR", "country": "FR", "event_time": int(time.time() * 1000),
    }  # fmt: skip


def plain(number: int) -> bytes:
    return json.dumps(transaction(number, 900.0)).encode()


def test_a_group_decides_framed_transactions_by_published_schemas(
    bench: Bench, registry: Registry, tmp_path: Path
) -> None:
    login = {"FRAUD_REGISTRY_AUTHORIZATION": registry.authorization}

    def publish(*arguments: str, **variables: str) -> Result:
        return bench.run(schemas, "publish", "--registry", registry.url, *arguments, **(variables or login))

    assert "schema 1 is published" in publish("--version", "1").output
    assert "schema 1 was published before" in publish("--version", "1").output
    assert "schema 2 is published" in publish("--subject", "json/value").output
    for subject, says in (
        ("float", "amount is float; a transaction needs"), ("parts", "refers to other subjects"),
        ("proto", "PROTOBUF"), ("missing-value", "404"),
        ("other", "id 1 has another schema"),
    ):  # fmt: skip
        refused = publish("--subject", subject)
        assert refused.exit_code
        assert says in str(refused.exception), subject
    assert "401" in str(publish(FRAUD_REGISTRY_AUTHORIZATION="Basic no").exception)
    published = [record.value or b"" for record in TopicLog(bench.settings.bootstrap_servers).read(
        bench.settings.topics.record_schemas)]  # fmt: skip
    assert [json.loads(value)["schema_id"] for value in published] == [1, 2]

    def framed(number: int, schema_id: int) -> bytes:
        if schema_id == 2:
            return frame(2, plain(number))
        return avro(schema_id, avro_schema(), transaction(number, 900.0))

    bench.send(plain(0), framed(1, 1), framed(2, 2), framed(3, 9), framed(4, 1)[:-1], frame(2, b"{"))
    bench.decide()
    bench.send(framed(5, 1), framed(6, 9))
    bench.decide(is_killed=True)  # what it has written is decided again, in silence
    assert "schema 9 is published" in publish().output
    bench.send(framed(7, 9), framed(8, 1), plain(9))
    bench.decide()
    replayed = bench.run(dead_letters, "replay", "--reason", "unknown_schema")
    assert json.loads(replayed.output) == {"sent": 2, "sent_before": 0}
    bench.decide()

    log, topics = TopicLog(bench.settings.bootstrap_servers), bench.settings.topics
    audited = verify(log, bench.settings, lambda scorer: load(scorer.model).on(NAMES))
    assert audited.is_clean, audited.report()
    assert audited.events == 13
    assert dict(audited.dead_letters) == {"unknown_schema": 2, "malformed_avro": 1, "malformed_json": 1}
    sent = [json.loads(record.value or b"") for record in log.read(topics.fraud_alerts)]
    assert {alert["amount"] for alert in sent} == {900.0}

    place = tmp_path / "archive"
    settings = LetterSettings(bootstrap_servers=bench.settings.bootstrap_servers, topics=topics)
    archive(
        settings, Storage(str(place)), Timing(3600, 3600), Event(), lambda _: None,
        until_now=True, accept_loss=False,
    )  # fmt: skip
    (batch,) = Archive(str(place)).read("transactions", 0, columns=("card_id", "amount"))
    decided = [900.0] * 3 + [None] * 3 + [900.0, None] + [900.0] * 5
    assert batch["amount"].to_pylist() == decided
    assert batch["card_id"].to_pylist() == [amount and "card" for amount in decided]

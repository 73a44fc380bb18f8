"""The whole path with real servers, seen from outside: transactions and profiles in, alerts out.

Three fixtures follow each other, and each test needs one of them only:
`job` decides 3,000 transactions, and then what the tests send;
`stop` tells it to stop amid 4,000 more;
`next_job` goes on, and is audited with all that was sent.
"""

import base64
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from socket import AF_UNIX
from typing import Any

import psutil
import psycopg
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from harness.job_log import AGAIN
from harness.logins import logged_in
from harness.records import transaction
from harness.sidecar_process import SidecarProcess
from typer.testing import CliRunner

from deploy import cli
from feature_store.catalogue import IDENTITIES
from feature_store.release import RELEASE
from loadtests.faults.installation import UNDISTURBED, Installation, trained, world
from loadtests.faults.job_process import JobProcess
from loadtests.oracle import Kind
from loadtests.simulator import profiles
from service.rollouts import reading
from service.settings import ServiceSettings
from streaming_job import explain
from streaming_job.contracts import Contract, Reason, validate
from streaming_job.contracts.topic import Component
from streaming_job.dead_letters.record import MAX_LETTER
from streaming_job.explain import UnknownCardError, look_up
from streaming_job.group.opening import HEARTBEAT_S
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.transaction.written import Mark

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

WaitFor = Callable[..., object]
BLOCKED = 7
"""Number of the card that is blocked."""


EPOCH = re.compile(r"^(.{23}) INFO epoch \d+: (\d+) transactions, (\d+) alerts, (\d+) dead letters", re.M)
"""The job's log line at the end of each epoch."""
PROGRESS = "StreamingQueryListener$QueryProgressEvent"
LARGE = 3 << 20
"""Bytes of a record too large for a dead letter."""


def events(installed: Installation) -> Path:
    """Directory of Spark's event log."""
    return installed.directory / "spark-events"


def event_log(installed: Installation) -> list[str]:
    """Lines of the event log so far."""
    return [line for path in events(installed).rglob("events_*") for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def job(installed: Installation) -> Iterator[JobProcess]:
    """A job that has decided about 3,000 transactions of all kinds."""
    profiles.load(installed.stack.postgres_dsn, world())
    events(installed).mkdir()
    spark = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events(installed)}",
        "spark.eventLog.compress": "false",
    }
    with installed.start(spark=spark) as running:
        installed.send(3_000, late=0.02, out_of_order=0.05, future=0.01, malformed=0.05, duplicated=0.02)
        installed.caught_up(running)
        yield running


def decoded(value: bytes | None) -> dict[str, Any]:
    content = json.loads(value or b"")
    assert isinstance(content, dict)
    return content


def by_group(installed: Installation) -> dict[int, list[dict[str, Any]]]:
    """Progress records of each key group, in order."""
    groups: dict[int, list[dict[str, Any]]] = {group: [] for group in range(installed.settings.key_groups)}
    for record in installed.progress():
        content = decoded(record.value)
        groups[content["key_group"]].append(content)
    return groups


def test_alerts_and_dead_letters_equal_the_oracles(installed: Installation, job: JobProcess) -> None:
    verdict = installed.audit()
    # nothing is suppressed: the policy has no cooldown
    assert {kind for kind in Kind if verdict.kinds[kind]} == set(Kind) - {Kind.SUPPRESSED}
    assert len(verdict.dead_letters) > 5


def test_records_keep_their_contracts(installed: Installation, job: JobProcess) -> None:
    topics = installed.topics
    for topic, contract in (
        (topics.fraud_alerts, Contract.ALERT),
        (topics.dead_letters, Contract.DEAD_LETTER),
        (topics.job_progress, Contract.JOB_PROGRESS),
    ):
        records = installed.read(topic)
        assert records
        for record in records:
            validate(contract, decoded(record.value))
    for topic in (topics.fraud_alerts, topics.dead_letters):
        for record in installed.read(topic):
            headers = dict(record.headers)
            assert headers["query_id"]
            assert int(headers["key_group"] or b"") in range(installed.settings.key_groups)
            assert int(headers["commit_id"] or b"") > 0
            assert headers["release"] == RELEASE.encode()
    for record in (*installed.read(topics.fraud_alerts), *installed.progress()):
        assert decoded(record.value)["release"] == RELEASE


def test_progress_has_keys_and_no_gaps_in_each_group(installed: Installation, job: JobProcess) -> None:
    assert {record.key for record in installed.progress()} == {installed.settings.job_id.encode()}
    for records in by_group(installed).values():
        assert records
        assert [record["commit_id"] for record in records] == list(range(1, len(records) + 1))


def test_idle_groups_send_heartbeats(installed: Installation, job: JobProcess, wait_for: WaitFor) -> None:
    installed.caught_up(job)
    before = {group: records[-1]["commit_id"] for group, records in by_group(installed).items()}

    def heartbeats() -> dict[int, dict[str, Any]]:
        return {
            group: record
            for group, records in by_group(installed).items()
            for record in records[before[group] :]
            if record["written_at"] - record["started_at"] > 900 * HEARTBEAT_S
        }

    wait_for(lambda: len(heartbeats()) == len(before), deadline_s=150, what="a heartbeat of each group")
    for record in heartbeats().values():
        assert record["counts"]["records"] == 0
        assert all(part["start_offset"] == part["end_offset"] for part in record["partitions"])
        assert record["written_at"] - record["started_at"] < 1500 * HEARTBEAT_S


def test_an_admin_client_sees_the_correct_offsets(installed: Installation, job: JobProcess) -> None:
    installed.caught_up(job)
    admin = AdminClient({"bootstrap.servers": installed.stack.bootstrap_servers})
    group = installed.settings.job_id
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=30)
    committed = {(p.topic, p.partition): p for p in asked[group].result(60).topic_partitions}
    transactions = installed.topics.transactions
    assert {topic for topic, _ in committed} == {transactions, *installed.topics.tables}
    partitions = [TopicPartition(topic, partition) for topic, partition in committed]
    ends = admin.list_offsets({tp: OffsetSpec.latest() for tp in partitions}, request_timeout=30)
    for position, end in ends.items():
        assert committed[position.topic, position.partition].offset == end.result(60).offset
    groups = by_group(installed)
    for partition in range(2):
        mark = Mark.from_metadata(committed[transactions, partition].metadata)
        assert mark is not None
        # a heartbeat may come between the two calls
        assert mark.commit_id in [record["commit_id"] for record in groups[partition][-3:]]
        assert mark.query_id == groups[partition][-1]["query_id"]


def test_all_workers_come_from_one_daemon(installed: Installation, job: JobProcess) -> None:
    # workers with different environments do not share a daemon of Spark, and each daemon costs memory
    assert len(job.workers()) >= 2
    assert len({worker.ppid() for worker in job.workers()}) == 1


def open_to_others(installed: Installation) -> list[Path]:
    """The job's files that other users may read, write or enter.

    Copies of models are left out: they keep the modes of the registry's files, in a directory that is closed
    to others.
    """
    result = []
    work, models = installed.settings.work_dir, installed.settings.work_dir / "models"
    for root in (work, Path(installed.settings.checkpoint)):
        assert root.exists()
        for path in (root, *(path for path in root.rglob("*") if models not in path.parents)):
            with suppress(FileNotFoundError):  # a file that the running job has deleted meanwhile
                mode = path.lstat().st_mode
                result += [path] if mode & 0o077 and not stat.S_ISLNK(mode) else []
    return result


def assert_on_loopback(sockets: Sequence[Any]) -> None:
    """Check that some of these sockets (psutil's connections) listen, and only on the loopback interface."""
    listening = {ip_address(socket.laddr.ip) for socket in sockets if socket.status == psutil.CONN_LISTEN}
    assert listening
    assert all((getattr(address, "ipv4_mapped", None) or address).is_loopback for address in listening)


def test_other_users_can_reach_neither_files_nor_ports_of_the_job(
    installed: Installation, job: JobProcess
) -> None:
    assert open_to_others(installed) == []
    family = [psutil.Process(job.pid), *job.descendants()]
    sockets = [socket for process in family for socket in process.net_connections("all")]
    assert_on_loopback(sockets)
    # Spark's sockets, over which Python processes receive their tasks
    paths = {Path(socket.laddr) for socket in sockets if socket.family == AF_UNIX and socket.laddr}
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_socket()}
    assert modes
    assert {mode & 0o077 for mode in modes.values()} == {0}
    (environment,) = (line for line in event_log(installed) if '"SparkListenerEnvironmentUpdate"' in line)
    assert json.loads(environment)["Spark Properties"]["spark.ui.enabled"] == "false"


def set_status(installed: Installation, card: str, status: str) -> None:
    with psycopg.connect(installed.stack.postgres_dsn) as connection:
        connection.execute("update card_profiles set status = %s where card_id = %s", (status, card))


def statuses(installed: Installation, card: str) -> list[str]:
    """Statuses of a card on Debezium's topic, in order."""
    result = [
        decoded(record.value)["after"]["status"]
        for record in installed.read(installed.topics.profiles)
        if record.value is not None and decoded(record.value)["op"] != "d"
        if decoded(record.key)["card_id"] == card
    ]
    return [str(status) for status in result]


def test_card_blocked_in_postgres_is_declined_from_then_on(
    installed: Installation, job: JobProcess, wait_for: WaitFor
) -> None:
    card = world().cards.ids[BLOCKED].as_py()
    sent = {name: transaction(BLOCKED) for name in ("before", "blocked", "unblocked")}
    count = len(statuses(installed, card))
    installed.send_raw([json.dumps(sent["before"]).encode()], card.encode())
    installed.caught_up(job)
    for number, (name, status) in enumerate((("blocked", "blocked"), ("unblocked", "active")), count + 1):
        set_status(installed, card, status)
        wait_for(lambda n=number: len(statuses(installed, card)) == n, deadline_s=120, what="the change")
        # sent only now, because the profile at the transaction's arrival decides
        installed.send_raw([json.dumps(sent[name]).encode()], card.encode())
        installed.caught_up(job)
    assert statuses(installed, card)[count:] == ["blocked", "active"]
    alerts = {
        alert["transaction_id"]: alert
        for alert in (decoded(record.value) for record in installed.read(installed.topics.fraud_alerts))
    }
    stopped = alerts[sent["blocked"]["transaction_id"]]
    assert stopped["decision"] == "decline"
    assert "blocked_card" in stopped["rules"]
    assert stopped["profile"]["status"] == "blocked"
    for name in ("before", "unblocked"):
        alert = alerts.get(sent[name]["transaction_id"], {"decision": None, "rules": []})
        assert alert["decision"] != "decline"
        assert "blocked_card" not in alert["rules"]


def text(**changes: object) -> bytes:
    return json.dumps({**transaction(1), **changes}).encode()


def without(field: str) -> bytes:
    return json.dumps({name: value for name, value in transaction(1).items() if name != field}).encode()


BAD: dict[str, tuple[bytes | None, Reason]] = {
    "nothing": (None, Reason.EMPTY_VALUE),
    "empty": (b"", Reason.EMPTY_VALUE),
    "no JSON": (b"not json", Reason.MALFORMED_JSON),
    "JSON cut short": (text()[:-5], Reason.MALFORMED_JSON),
    "two records in one": (text() + b"\n" + text(), Reason.MALFORMED_JSON),
    "half of a pair that would fit together": (b'{"a":"}', Reason.MALFORMED_JSON),
    "the other half": (b'{"}', Reason.MALFORMED_JSON),
    "a number": (b"17", Reason.NOT_AN_OBJECT),
    "a list": (b"[" + text() + b"]", Reason.NOT_AN_OBJECT),
    "NaN": (text(amount=float("nan")), Reason.NON_FINITE_NUMBER),
    "Infinity": (text(amount=float("inf")), Reason.NON_FINITE_NUMBER),
    "too large a number": (text().replace(b"12.5", b"1e999"), Reason.NON_FINITE_NUMBER),
    "a negative amount": (text(amount=-1), Reason.NEGATIVE_AMOUNT),
    "an amount in words": (text(amount="12.5"), Reason.WRONG_TYPE),
    "true as amount": (text(amount=True), Reason.WRONG_TYPE),
    "a time with a fraction": (text(event_time=1.5), Reason.WRONG_TYPE),
    "null as card": (text(card_id=None), Reason.WRONG_TYPE),
    "an object as merchant": (text(merchant_id={}), Reason.WRONG_TYPE),
    "no such currency": (text(currency="euro"), Reason.INVALID_VALUE),
    "a control character": (text(transaction_id="a\x00b"), Reason.INVALID_VALUE),
    "half a surrogate pair": (text(card_id="\ud800"), Reason.INVALID_VALUE),
    "a name of 65 characters": (text(card_id="x" * 65), Reason.INVALID_VALUE),
    "a field twice": (text()[:-1] + b', "amount": 1}', Reason.DUPLICATE_FIELD),
    "a card number": (text(card_id="4111111111111111"), Reason.CARD_NUMBER),
    "a hundred kilobytes": (text(note="x" * 100_000), Reason.RECORD_TOO_LARGE),
    "Latin-1": (text(merchant_id="m").replace(b'"m"', b'"caf\xe9"'), Reason.INVALID_UTF8),
    "UTF-16": (text().decode().encode("utf-16"), Reason.INVALID_UTF8),
    "a byte-order mark": (b"\xef\xbb\xbf" + text(), Reason.MALFORMED_JSON),
    "a month late": (text(event_time=transaction(1)["event_time"] - 30 * 86_400_000), Reason.TOO_LATE),
    "an hour ahead": (text(event_time=transaction(1)["event_time"] + 3_600_000), Reason.FUTURE_EVENT_TIME),
    **{f"no {field}": (without(field), Reason.MISSING_FIELD) for field in transaction()},
}
GOOD = {
    "unknown fields": text(terminal="t-1", geo={"lat": 1.5, "tags": ["a", None]}),
    "known fields inside an unknown one": text(extra={"amount": -1, "card_id": 5}),
    "umlauts": text(merchant_id="Bäckerei"),
    "escapes": text(merchant_id="m").replace(b'"m"', b'"\\u0042\\u00e4ckerei"'),
    "an integer amount": text(amount=3),
}


OF_ROLLOUTS = {
    Reason.INCOMPATIBLE_FEATURES,
    Reason.MODEL_UNAVAILABLE,
    Reason.MODEL_REFUSED,
    Reason.UNKNOWN_ROLLOUT,
    Reason.LAST_ROLLOUT,
    Reason.ROLLOUT_CONFLICT,
    Reason.SECOND_PERSON_MISSING,
    Reason.UNKNOWN_TRANSACTION,  # a reason for labels, like the next one
    Reason.LABEL_TOO_OLD,
}


def test_each_invalid_record_becomes_a_dead_letter_with_its_bytes(
    installed: Installation, job: JobProcess
) -> None:
    key = b"not even a card \xff"
    # the invalid records are sent twice: alone, and among valid ones
    installed.send_raw([value for value, _ in BAD.values()], key)
    installed.send(500, **UNDISTURBED)
    installed.send_raw([value for value, _ in BAD.values()], key)
    installed.send_raw([*GOOD.values()], world().cards.ids[1].as_py().encode())
    installed.caught_up(job)
    result: dict[bytes | None, list[str]] = {}
    number = BAD["a card number"][0] or b""
    for record in installed.read(installed.topics.dead_letters):
        if decoded(record.value)["reason"] == Reason.CARD_NUMBER:
            assert record.key is None
            assert number[10:40] not in (record.value or b"")
            assert base64.b64encode(number)[:40] not in (record.value or b"")
            assert decoded(record.value)["value_sha256"] == hashlib.sha256(number).hexdigest()
            result.setdefault(number, []).append(Reason.CARD_NUMBER.value)
        elif record.key == key:
            letter = decoded(record.value)
            assert letter["topic"] == installed.topics.transactions
            assert base64.b64decode(letter["key_base64"]) == key
            assert letter["detail"]
            raw = None if letter["value_base64"] is None else base64.b64decode(letter["value_base64"])
            result.setdefault(raw, []).append(letter["reason"])
    assert result == {value: [reason.value] * 2 for value, reason in BAD.values()}
    of_frames = {Reason.UNKNOWN_SCHEMA, Reason.MALFORMED_AVRO}
    others = {Reason.WRONG_PARTITION, Reason.RETIRED_TOPIC, *of_frames, *OF_ROLLOUTS}
    assert {*Reason} - {reason for _, reason in BAD.values()} == others
    assert job.runs


def test_a_record_too_large_for_a_letter_becomes_one_with_its_size_and_hash(
    installed: Installation, job: JobProcess, wait_for: WaitFor
) -> None:
    servers, topic = installed.stack.bootstrap_servers, installed.topics.transactions
    limit = ConfigEntry("max.message.bytes", str(2 * LARGE), incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": servers})
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[limit])
    for change in admin.incremental_alter_configs([resource]).values():
        change.result(60)
    value = text(note=os.urandom(LARGE // 2).hex())
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 2 * LARGE})

    def is_taken() -> bool:
        errors: list[object] = []
        producer.produce(topic, value, b"large", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        return errors == [None]

    # a topic's new setting is acknowledged before the broker applies it
    wait_for(is_taken, what="the new limit")
    installed.sent += 1
    installed.caught_up(job)
    (record,) = (result for result in installed.read(installed.topics.dead_letters) if result.key == b"large")
    letter = decoded(record.value)
    assert len(record.value or b"") < MAX_LETTER
    assert letter["reason"] == Reason.RECORD_TOO_LARGE.value
    assert letter["value_base64"] is None
    assert letter["value_bytes"] == len(value) > LARGE
    assert letter["value_sha256"] == hashlib.sha256(value).hexdigest()


def test_invalid_rollouts_and_profiles_become_dead_letters(installed: Installation, job: JobProcess) -> None:
    topics = installed.topics
    for value in (b"not json", b"{}", None):
        installed.produce(topics.model_rollouts, b"bad", value)
    # all installations share the profiles topic, so each of them reads these records
    for key, value in (
        (b"{", None),
        (b'{"card_id": "c"}', b"not json"),
        (b'{"card_id": "c"}', b'{"op": "x"}'),
    ):
        installed.produce(topics.profiles, key, value)
    installed.flush()
    installed.caught_up(job)
    letters = [decoded(record.value) for record in installed.read(topics.dead_letters)]
    assert len([letter for letter in letters if letter["topic"] == topics.model_rollouts]) == 3
    assert len([letter for letter in letters if letter["topic"] == topics.profiles]) == 3


def test_corrected_dead_letters_are_decided_once(
    installed: Installation, job: JobProcess, tmp_path: Path
) -> None:
    """Truncated records are listed, corrected in a file, replayed and decided; none is sent twice."""
    card = world().cards.ids[2].as_py()
    whole = [json.dumps(transaction(2)).encode() for _ in range(3)]
    installed.send_raw([value[:-1] for value in whole], card.encode())
    installed.caught_up(job)
    environment = logged_in(installed, Component.DEAD_LETTERS).variables()
    file = tmp_path / "mend.jsonl"
    fraud(environment, "dead-letters", "list", "--reason", "malformed_json", "--raw", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    # the simulator may have damaged a record of this card, too
    mine = [line for line in lines if line.get("key") == card and line["value"].encode() + b"}" in whole]
    assert [line["value"].encode() + b"}" for line in mine] == whole
    assert card not in fraud(environment, "dead-letters", "list", "--json")
    with pytest.raises(AssertionError, match="would be refused; correct them"):
        fraud(environment, "dead-letters", "replay", str(file))
    for line in mine[:2]:
        line["value"] += "}"
    file.write_text("\n".join(json.dumps(line) for line in mine[:2]))
    assert json.loads(fraud(environment, "dead-letters", "replay", str(file), "--dry-run")) == {
        "would_send": 2,
        "sent_before": 0,
    }
    # a replay killed before its commit leaves neither records nor notes
    killed = Producer(
        {
            "bootstrap.servers": installed.stack.bootstrap_servers,
            "transactional.id": f"{installed.topics.dead_letters}-replay",
        }
    )
    killed.init_transactions(60)
    killed.begin_transaction()
    for line in mine[:2]:
        killed.produce(installed.topics.transactions, line["value"].encode(), partition=line["partition"])
        killed.produce(installed.topics.dead_letter_replays, b"{}", line["dead_letter"].encode())
    killed.flush(60)
    assert json.loads(fraud(environment, "dead-letters", "replay", str(file))) == {
        "sent": 2,
        "sent_before": 0,
    }
    mine[2]["value"] += "}"
    file.write_text("\n".join(json.dumps(line) for line in mine))
    assert json.loads(fraud(environment, "dead-letters", "replay", str(file))) == {
        "sent": 1,
        "sent_before": 2,
    }
    installed.sent += 3
    installed.caught_up(job)
    again = [
        record
        for record in installed.read(installed.topics.transactions)
        if "dead_letter" in dict(record.headers)
    ]
    assert [record.value for record in again] == whole
    assert [dict(r.headers)["dead_letter"] for r in again] == [line["dead_letter"].encode() for line in mine]
    sent_to = {record.partition for record in again}
    assert sent_to == {line["partition"] for line in mine}
    installed.audit()  # three more transactions are decided, none twice


def test_transactions_in_a_wrong_partition_are_refused_and_replayed_to_the_right_one(
    installed: Installation, job: JobProcess, tmp_path: Path
) -> None:
    card = world().cards.ids[3].as_py()
    right = [json.dumps(transaction(3)).encode() for _ in range(2)]
    installed.send_raw(right)
    partition = {r.value: r.partition for r in installed.read(installed.topics.transactions)}[right[0]]
    wrong = [json.dumps(transaction(3)).encode() for _ in range(2)]
    installed.send_raw(wrong, partition=1 - partition)
    installed.caught_up(job)
    letters = {
        base64.b64decode(letter["value_base64"]): letter
        for letter in (decoded(record.value) for record in installed.read(installed.topics.dead_letters))
        if letter["reason"] == Reason.WRONG_PARTITION.value
    }
    assert [*letters] == wrong
    for letter in letters.values():
        assert letter["partition"] == 1 - partition
        assert f"in partition {1 - partition}, but the card's partition is {partition}; " in letter["detail"]
    environment, file = logged_in(installed, Component.DEAD_LETTERS).variables(), tmp_path / "wrong.jsonl"
    fraud(environment, "dead-letters", "list", "--reason", "wrong_partition", "--raw", str(file))
    assert json.loads(fraud(environment, "dead-letters", "replay", str(file))) == {
        "sent": 2,
        "sent_before": 0,
    }
    installed.sent += 2
    installed.caught_up(job)
    result = [
        (record.partition, record.key)
        for record in installed.read(installed.topics.transactions)
        if record.value in wrong
    ]
    assert sorted(result) == sorted([(1 - partition, card.encode())] * 2 + [(partition, card.encode())] * 2)
    assert installed.reasons()[Reason.WRONG_PARTITION.value] == 2


def fraud(environment: dict[str, str], *arguments: str) -> str:
    """Run a command of `fraud`; return its output."""
    done = CliRunner().invoke(cli.app, arguments, env=environment)
    assert done.exit_code == 0, done.output
    return done.stdout


IDLE_WORKER_ENDED = re.compile(
    r"Traceback \(most recent call last\):\n(?:  File .*/pyspark/daemon\.py\", .*\n(?:    .*\n)*)+"
    r"BrokenPipeError: .*\n"
)
"""Output of Spark's daemon when it ends a worker that was idle for a minute."""


def observed_by_spark(installed: Installation) -> list[dict[str, int]]:
    """Observed metrics of each epoch from the event log, which must contain no secret."""
    lines = event_log(installed)
    assert not [line for line in lines if installed.settings.kafka["sasl.password"] in line]
    of_epochs = [
        json.loads(line)["progress"]["observedMetrics"]["epoch"] for line in lines if PROGRESS in line
    ]
    return [
        dict(zip((field["name"] for field in metrics["schema"]["fields"]), metrics["values"], strict=True))
        for metrics in of_epochs
    ]


def test_rollouts_that_cannot_decide_leave_the_last_good_one_in_force(
    installed: Installation, job: JobProcess
) -> None:
    """Their models have changed files, an unknown version, or features of another release."""
    good = installed.roll_out()
    for change in (
        {"digest": "0" * 64},
        {"digest": "1" * 64, "version": "99"},
        {"features": ("amount:9",)},
    ):
        installed.roll_out(model=replace(good.model, **change))
    installed.send(50, **UNDISTURBED)
    installed.caught_up(job)
    refused = {"model_refused": 1, "model_unavailable": 1, "incompatible_features": 1}
    assert {reason: count for reason, count in installed.reasons().items() if reason in refused} == refused
    for records in by_group(installed).values():
        assert sorted(records[-1]["rollouts_set_aside"].values()) == sorted(refused)
        assert records[-1]["rollout_id"] == good.rollout_id


def test_before_a_proposal_the_desk_learns_which_features_the_running_job_computes(
    installed: Installation, job: JobProcess
) -> None:
    known = installed.settings
    for job_id, topic, records in (
        (known.job_id, known.topics.job_progress, list(IDENTITIES)),
        ("nobody", known.topics.job_progress, None),
        (known.job_id, "no-such-topic", None),
    ):
        topics = known.topics.model_copy(update={"job_progress": topic})
        where = ServiceSettings(
            bootstrap_servers=installed.stack.bootstrap_servers, job_id=job_id, topics=topics
        )
        assert reading.job(where).computed(time.time()) == records


# Each tool logs in as its own user, who has only the permissions that it needs.


@pytest.fixture(scope="module")
def permitted_rollout(installed: Installation, job: JobProcess) -> str:
    """Id of a rollout in shadow, written by `fraud rollouts`."""
    model = trained(installed.settings.mlflow_tracking_uri)
    asked = [f"{model.ref.name}/{model.ref.version}", "--threshold", "0.5", "--rollout-id", "r-permitted"]
    owner = logged_in(installed, Component.ROLLOUTS).variables()
    fraud(owner, "rollouts", "propose", *asked)
    fraud(owner, "rollouts", "step", "r-permitted", "shadow", "--reason", "test")
    return "r-permitted"


def alerted(installed: Installation) -> tuple[str, str]:
    """Card and transaction of the first alert."""
    alert = decoded(installed.read(installed.topics.fraud_alerts)[0].value)
    return alert["card_id"], alert["transaction_id"]


def test_the_tool_of_rollouts_works_with_its_own_permissions(
    installed: Installation, permitted_rollout: str
) -> None:
    owner = logged_in(installed, Component.ROLLOUTS).variables()
    assert permitted_rollout in fraud(owner, "rollouts", "show", permitted_rollout, "--verdict")


def test_the_tool_of_labels_works_with_its_own_permissions(installed: Installation, job: JobProcess) -> None:
    card, transaction_id = alerted(installed)
    analyst = logged_in(installed, Component.LABELS).variables()
    kind = ["--kind", "verdict", "--verdict", "fraud"]
    fraud(analyst, "labels", "add", card, transaction_id, *kind, "--source", "ada")
    assert json.loads(fraud(analyst, "labels", "show", card))["record"]["source"] == "ada"


@pytest.fixture(scope="module")
def sidecar(installed: Installation, job: JobProcess, wait_for: WaitFor) -> Iterator[SidecarProcess]:
    """A ready sidecar that has only its own permissions."""
    with SidecarProcess(**logged_in(installed, Component.SIDECAR).variables()) as running:
        wait_for(lambda: running.get("readyz")[0] == 200, deadline_s=60, what="a ready sidecar")
        yield running


def test_the_sidecar_writes_rollouts_with_its_own_permissions(
    sidecar: SidecarProcess, permitted_rollout: str
) -> None:
    body = {"type": "rolled_back", "reason": "test"}
    steps = sidecar.post(f"v1/rollouts/{permitted_rollout}/events", body, **{"Idempotency-Key": "k"})
    assert steps.status_code == 201, steps.text


def test_the_sidecar_writes_labels_with_its_own_permissions(
    installed: Installation, sidecar: SidecarProcess
) -> None:
    card, transaction_id = alerted(installed)
    label = {"card_id": card, "transaction_id": transaction_id, "kind": "refund"}
    written = sidecar.post("v1/labels", {"labels": [label]})
    assert written.status_code == 201, written.text


@pytest.mark.parametrize("path", ["v1/alerts", "v1/audit", "v1/quality", "v1/decisions"])
def test_the_sidecar_answers_with_its_own_permissions(
    installed: Installation, sidecar: SidecarProcess, path: str
) -> None:
    status, body = sidecar.get("/".join((path, *(alerted(installed) if path == "v1/decisions" else ()))))
    assert status == 200, body


def test_the_audit_works_with_its_own_permissions(
    installed: Installation, job: JobProcess, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    auditor = CliRunner().invoke(
        cli.app, ["verify", "--report", str(report)], env=logged_in(installed, Component.AUDIT).variables()
    )
    assert report.exists(), auditor.output
    assert json.loads(report.read_text())["missing"] == 0


@dataclass(frozen=True)
class Stop:
    """Exit code, progress records and metrics of a job after a graceful stop."""

    asked_at: datetime
    exit_code: int
    groups: dict[int, list[dict[str, Any]]]
    """Progress records by key group."""
    observed: list[dict[str, int]]
    """See `observed_by_spark`."""


@pytest.fixture(scope="module")
def stop(installed: Installation, job: JobProcess) -> Stop:
    """The job, told to stop while 4,000 transactions come in; the tests below run after it."""
    installed.send(4_000)
    asked_at = datetime.now()
    return Stop(asked_at, job.terminate(), by_group(installed), observed_by_spark(installed))


def test_a_graceful_stop_begins_no_epoch(job: JobProcess, stop: Stop) -> None:
    assert stop.exit_code == 0
    assert "Traceback (most recent call last):\n  File" not in IDLE_WORKER_ENDED.sub("", job.log)
    ends = [datetime.strptime(line[0], "%Y-%m-%d %H:%M:%S,%f") for line in EPOCH.findall(job.log)]
    assert sum(end > stop.asked_at for end in ends) <= 2  # one may end while the signal is under way


def test_a_job_that_has_stopped_leaves_no_file_open_to_others(installed: Installation, stop: Stop) -> None:
    assert open_to_others(installed) == []


@pytest.mark.parametrize(("column", "name"), [(1, "transactions"), (2, "alerts"), (3, "dead_letters")])
def test_log_and_metrics_of_spark_show_the_sums_of_the_groups(
    job: JobProcess, stop: Stop, column: int, name: str
) -> None:
    output = sum(records[-1]["totals"]["counts"][name] for records in stop.groups.values())
    assert sum(int(epoch[column]) for epoch in EPOCH.findall(job.log)) == output > 0
    assert sum(metrics[name] for metrics in stop.observed) == output


def test_metrics_of_spark_show_all_commits(stop: Stop) -> None:
    assert sum(metrics["commits"] for metrics in stop.observed) == sum(map(len, stop.groups.values()))


@pytest.fixture(scope="module")
def next_job(installed: Installation, stop: Stop) -> Iterator[JobProcess]:
    """A job that has continued and caught up."""
    with installed.start() as running:
        installed.send(500)
        installed.caught_up(running)
        yield running


def test_the_next_start_continues(installed: Installation, stop: Stop, next_job: JobProcess) -> None:
    installed.audit()
    assert AGAIN not in next_job.log
    assert next_job.runs
    for group, records in by_group(installed).items():  # with the working copy that the last cut has left
        assert not sum(record["state"]["rebuilds"] for record in records[len(stop.groups[group]) :])


def test_totals_are_those_of_both_starts(installed: Installation, next_job: JobProcess) -> None:
    for records in by_group(installed).values():
        total = records[-1]["totals"]
        assert [record["commit_id"] for record in records] == list(range(1, len(records) + 1))
        assert total["commits"] == len(records) > 10
        for name, count in total["counts"].items():
            assert count == sum(record["counts"][name] for record in records), name
        busy = [part for part in records[-1]["partitions"] if part["topic"] == installed.topics.transactions]
        assert all(part["watermark"] <= part["active_at"] for part in busy)


def test_a_card_is_explained_while_the_job_runs(installed: Installation, next_job: JobProcess) -> None:
    checkpoint, card = str(installed.settings.checkpoint), world().cards.ids[2].as_py()
    with explain.session() as spark:
        jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
        assert_on_loopback(
            [socket for process in (jvm, *jvm.children()) for socket in process.net_connections()]
        )
    shell = CliRunner()
    asked = ["explain-card", card, "--checkpoint", checkpoint]
    shown = shell.invoke(cli.app, asked, env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    transactions = re.search(r"transactions (\d+), ", shown.output)
    assert transactions is not None
    assert int(transactions[1]) >= 3  # the corrected transactions
    assert "as of the last event" in shown.output
    assert "suspicious_count" in shown.output
    with pytest.raises(UnknownCardError, match=r"card ca\*\*\*dy is not in the job's state"):
        look_up("card-of-nobody", checkpoint)
    with pytest.raises(CheckpointError, match="give the checkpoint of a job that has run"):
        look_up(card, str(installed.directory / "none"))

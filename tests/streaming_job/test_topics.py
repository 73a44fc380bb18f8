"""The table of topics: what follows from each row when a key group commits, and on brokers and page.

That the audit finds faults in each output is tested in tests/loadtests/test_audited_outputs.py.
"""

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from harness import settings_of_nowhere
from harness.log_world import TOPICS

from deploy import topics_page
from service.settings import ServiceSettings
from streaming_job import contracts, environment
from streaming_job.contracts import Contract, validate
from streaming_job.contracts.topic import Component, Operation, Role, Topic, Without
from streaming_job.contracts.topics import COUNTED, DIGESTED, PROMPT, TABLE, WRITTEN, Topics
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.group.committer import GroupCommitter
from streaming_job.permissions import needed
from streaming_job.progress.outcome import Outcome, OutputRecord
from streaming_job.progress.writer import GroupProgress
from streaming_job.settings import JobSettings
from streaming_job.transaction import writer
from streaming_job.transaction.batches import Headers
from streaming_job.transaction.written import GroupOutput

pytestmark = pytest.mark.unit
SETTINGS = settings_of_nowhere.settings(merchant_facts=True, topics=TOPICS)
BY_JOB = {field: row for field, row in TABLE.items() if row.role in (Role.OUTPUT, Role.STATE, Role.PROGRESS)}


class Broker:
    """Stands for producer and reader of a key group's writer: keeps what is committed."""

    def __init__(self, *_: Any) -> None:
        """See `TransactionalProducer` and `WrittenReader`."""

    def running(self) -> GroupOutput:
        """See `WrittenReader`."""
        return GroupOutput()

    settled = running
    written: list[tuple[str, bytes | None, bytes]]

    def begin(self) -> None:
        """See `TransactionalProducer`."""
        self.written = []

    def produce(self, topic: str, key: bytes | None, value: bytes, headers: Headers) -> None:
        """See `TransactionalProducer`."""
        assert headers == Headers.of(writer.headers_of("query", 0, 1))
        self.written.append((topic, key, value))

    def produce_progress(self, group: int, value: bytes, headers: Headers) -> None:
        """See `TransactionalProducer`."""
        self.produce(SETTINGS.topics.job_progress, b"job", value, headers)

    def send(self, *_: Any) -> None:
        """See `TransactionalProducer`."""

    def flush(self) -> None:
        """See `TransactionalProducer`."""

    commit = flush


class CountedLetter(OutputRecord):
    """An output record with topic and reason, by which the progress record counts dead letters."""

    topic, reason = "tx", contracts.Reason.MISSING_FIELD


def committed(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes | None, bytes]]:
    """What the transaction of an outcome writes: (topic, key, value) in order."""
    broker = Broker()
    monkeypatch.setattr(writer, "TransactionalProducer", lambda *_: broker)
    monkeypatch.setattr(writer, "WrittenReader", lambda *_: broker)
    committer = GroupCommitter(
        writer.GroupWriter(SETTINGS, 0, [0], "query", "instance"),
        GroupProgress("job", "query", 0, 1, None),
        SETTINGS.topics.transactions, {}, 0, {},
    )  # fmt: skip
    committer.begin()
    committer.commit(lambda: outcome, {(SETTINGS.topics.transactions, 0): 9}, {})
    return broker.written


@pytest.mark.parametrize("field", WRITTEN)
def test_what_a_topic_holds_is_written_with_its_count_and_digest(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two records come in the wrong order; with a digest they are written in the order of their inputs."""
    outcome = Outcome()
    late, early = CountedLetter(b"k", b"late", 0, 7), CountedLetter(b"k", b"early", 0, 3)
    outcome.records[field] += [late, early]
    *records, (topic, _, value) = committed(outcome, monkeypatch)
    values = [b"early", b"late"] if field in DIGESTED else [b"late", b"early"]
    assert records == [(getattr(SETTINGS.topics, field), b"k", value) for value in values]
    progress = json.loads(value)
    assert topic == SETTINGS.topics.job_progress
    validate(Contract.JOB_PROGRESS, progress)
    assert {name: n for name, n in progress["counts"].items() if n} == (
        {COUNTED[field]: 2, **({"records": 2} if field == "dead_letters" else {})} if field in COUNTED else {}
    )
    assert progress["totals"]["counts"] == progress["counts"]
    digest = {DIGESTED[field]: hashlib.sha256(b"earlylate").hexdigest()} if field in DIGESTED else {}
    nothing = hashlib.sha256().hexdigest()
    assert {name: value for name, value in progress["digests"].items() if value != nothing} == digest


@pytest.mark.parametrize("field", WRITTEN)
def test_only_a_prompt_topic_is_committed_at_once(field: str) -> None:
    outcome = Outcome()
    outcome.records[field].append(OutputRecord(b"k", b"v"))
    assert outcome.is_prompt == TABLE[field].is_prompt == (field in PROMPT)


@pytest.mark.parametrize("row", BY_JOB.values(), ids=BY_JOB)
def test_a_topic_without_count_digest_or_contract_says_why(row: Topic) -> None:
    assert row.count != Without("the job does not write it"), "a reason of its own"
    if row.without_digest is None:
        assert isinstance(row.count, str), "the digest is named as the count"
    for said in (row.count, row.without_digest, row.contract):
        assert said is None or (said.reason if isinstance(said, Without) else said)


def test_each_contract_is_a_file_of_a_row() -> None:
    schemas = {path.name for path in files(contracts).iterdir() if path.name.endswith(".json")}
    named = {row.contract for row in TABLE.values() if not isinstance(row.contract, Without)}
    schemas -= {"policy.json"}  # what several schemas share
    assert schemas == {f"{contract}.json" for contract in named} == {f"{c.value}.json" for c in Contract}


@pytest.mark.parametrize("field", DIGESTED)
def test_a_digested_record_names_its_input_its_release_and_its_key(field: str) -> None:
    row = TABLE[field]
    assert isinstance(row.contract, str)
    required = set(contracts.schema(Contract(row.contract))["required"])
    assert {"source", "release", row.key, *row.identity} <= required


def allowed(component: Component, topic: str) -> set[Operation]:
    return {
        operation
        for permission in needed(component, SETTINGS)
        if permission.name == topic
        for operation in permission.operations
    }


@pytest.mark.parametrize("field", BY_JOB)
def test_the_job_may_write_its_topics_and_the_audit_may_read_them(field: str) -> None:
    name = getattr(SETTINGS.topics, field)
    assert Operation.WRITE in allowed(Component.JOB, name)
    assert Operation.READ in allowed(Component.AUDIT, name)


def test_the_job_may_take_over() -> None:
    """A takeover has a transactional id and a client of its own."""
    name = f"{SETTINGS.job_id}-takeover"
    assert allowed(Component.JOB, name) == {Operation.WRITE, Operation.DESCRIBE}


def test_topics_that_the_transactions_have_left_are_named_with_commas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in SETTINGS.variables().items():
        monkeypatch.setenv(name, value)
    assert environment.settings(JobSettings).retired_transactions == ()
    monkeypatch.setenv("FRAUD_RETIRED_TRANSACTIONS", "older, old,older,")
    moved = environment.settings(JobSettings)
    assert (
        moved.retired_transactions
        == environment.settings(LetterSettings).retired_transactions
        == ("older", "old")
    )
    assert moved.variables()["FRAUD_RETIRED_TRANSACTIONS"] == "older,old"
    for component, is_allowed in ((Component.JOB, True), (Component.SIDECAR, False)):
        granted = {permission.name for permission in needed(component, moved)}
        assert ({"older", "old"} <= granted) == is_allowed


def test_the_sidecar_may_read_each_topic_that_it_watches() -> None:
    settings = settings_of_nowhere.settings(topics=TOPICS, merchant_facts=True)
    # those of merchant facts it watches if the job reads them
    watched = {*ServiceSettings(bootstrap_servers="nowhere", topics=TOPICS).inputs, *TOPICS.fact_tables}
    assert {TOPICS.record_schemas, TOPICS.merchant_facts} <= watched
    readable = {
        permission.name
        for permission in needed(Component.SIDECAR, settings)
        if Operation.READ in permission.operations
    }
    assert watched <= readable


@pytest.mark.parametrize("field", TABLE)
def test_every_topic_is_retained_on_purpose_and_described(field: str) -> None:
    row, name = TABLE[field], getattr(TOPICS, field)
    assert row.retention.reason
    config = TOPICS.configs()[name]
    assert int(config["retention.ms"]) == (
        -1 if row.retention.days is None else row.retention.days * 86_400_000
    )
    page = topics_page.page((Path(__file__).parents[2] / "docs" / "topics.md").read_text())
    (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` | {row.role} |")]
    assert row.retention.reason in line


def test_a_topic_without_a_name_is_used_by_nobody() -> None:
    """The others are as if it were not in the table; a replay's names are no names of it either."""
    topics = Topics()
    assert "" not in {*topics.configs(), *topics.partitions(2), *topics.tables, *topics.inputs}
    assert {*TOPICS.tables} - {*topics.tables} == {"record-schemas"}
    assert topics.renamed(lambda name: f"{name}-a", but=()).record_schemas == ""
    assert TOPICS.renamed(lambda name: f"{name}-a", but=()).record_schemas == "record-schemas-a"


def test_reading_framed_transactions_is_a_setting_that_decides() -> None:
    """Before its topic had a name, the same records were dead letters."""
    name = "topics__record_schemas"
    assert SETTINGS.decisive[name] == "record-schemas"
    assert name not in settings_of_nowhere.settings().decisive

"""A table of its own in Postgres, a connector of its own: what becomes of it on the way to the alerts.

Every transaction alerts here, so every alert shows which version of the profile it was decided with. The
tests are one story: each goes on where the one before ended, and the audit covers all of it.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from harness.records import transaction

from deploy.local import connect, state
from deploy.local import stack as embedded
from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from loadtests.faults.job_process import JobProcess
from models.policy import Policy
from models.rollouts import Rollout, publish
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

WaitFor = Callable[..., Any]
ROWS = 3_000
"""Of the first snapshot."""
NAME = "cdc"
"""Of connector, slot, publication and topic prefix."""
TABLE = "cdc_profiles"
PATIENCE_S = 180.0


class Bank:
    """The table, its connector, and the job that follows it."""

    def __init__(self, stack: Endpoints, stack_dir: Path, topics: Topics, directory: Path) -> None:
        self.stack, self.stack_dir = stack, stack_dir
        self.installed = Installation(stack, topics, directory)
        self.installed.settings = self.installed.settings.model_copy(
            update={"wait_for_snapshot_s": int(PATIENCE_S)}
        )
        model = self.installed.roll_out().model
        everything = Rollout("everything", model, Policy(0.0, 10_000), "test", int(time.time() * 1000))
        publish(everything, stack.bootstrap_servers, topics.model_rollouts)

    def sql(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with psycopg.connect(self.stack.postgres_dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]

    def is_slot_active(self) -> bool | None:
        """Whether somebody follows the slot; None if there is none."""
        with psycopg.connect(self.stack.postgres_dsn) as connection:
            row = connection.execute(
                "SELECT active FROM pg_replication_slots WHERE slot_name = %s", [NAME]
            ).fetchone()
        return None if row is None else bool(row[0])

    def connector(self, method: str, path: str = "", body: object = None) -> int:
        """Call Connect's REST interface about the connector; returns the HTTP status."""
        place = urlsplit(self.stack.connect_url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(
                method, f"/connectors/{NAME}{path}", payload, {"Content-Type": "application/json"}
            )
            return connection.getresponse().status
        finally:
            connection.close()

    def connect(self) -> None:
        """Make the connector: like the stack's own, for another table."""
        config = {
            **connect.connector_config(self.stack_dir, state.load(self.stack_dir).ports),
            "topic.prefix": NAME, "slot.name": NAME, "publication.name": NAME,
            "table.include.list": f"public.{TABLE}",
        }  # fmt: skip
        assert self.connector("PUT", "/config", config) in (200, 201)

    def told(self, card: str) -> list[tuple[str, str | None]]:
        """What the topic says of a card: (op, status); "tombstone" where there is no value."""
        found: list[tuple[str, str | None]] = []
        for record in self.installed.read(self.installed.topics.profiles):
            if json.loads(record.key or b"")["card_id"] == card:
                envelope = json.loads(record.value) if record.value else {"op": "tombstone"}
                found.append((envelope["op"], (envelope.get("after") or {}).get("status")))
        return found

    def use(self, job: JobProcess, *cards: str) -> dict[str, dict[str, Any]]:
        """A transaction of each card, decided; returns the alerts by card."""
        sent = {card: transaction(card_id=card) for card in cards}
        for card, fields in sent.items():
            self.installed.send_raw([json.dumps(fields).encode()], card.encode())
        self.installed.caught_up(job)
        alerts = [json.loads(r.value or b"") for r in self.installed.read(self.installed.topics.fraud_alerts)]
        by_id = {alert["transaction_id"]: alert for alert in alerts}
        return {card: by_id[fields["transaction_id"]] for card, fields in sent.items()}


@pytest.fixture(scope="module")
def bank(
    stack: Endpoints, stack_dir: Path, topic_names: Callable[[], Topics], tmp_path_factory: Any
) -> Iterator[Bank]:
    topics = topic_names().model_copy(update={"profiles": f"{NAME}.public.{TABLE}"})
    made = Bank(stack, stack_dir, topics, tmp_path_factory.mktemp("cdc"))
    made.sql(f"CREATE TABLE {TABLE} (LIKE card_profiles INCLUDING ALL)")
    yield made
    made.connector("DELETE")


@pytest.fixture(scope="module")
def job(bank: Bank) -> Iterator[JobProcess]:
    with bank.installed.start() as running:
        yield running


def test_the_first_start_waits_for_the_snapshot(bank: Bank, job: JobProcess, wait_for: WaitFor) -> None:
    topics = bank.installed.topics
    bank.installed.send_raw([json.dumps(transaction(card_id="card-1")).encode()], b"card-1")
    wait_for(
        lambda: "waiting for the end of Debezium's first snapshot" in job.log or not job.runs,
        deadline_s=PATIENCE_S,
    )
    bank.sql(
        f"INSERT INTO {TABLE} SELECT 'card-' || n, 'active', 'DE', 'EUR', 1000, 1, '2020-01-01' "
        f"FROM generate_series(1, {ROWS}) n"
    )
    assert bank.installed.read(topics.job_progress) == []
    bank.connect()
    bank.installed.caught_up(job)
    (first,) = bank.installed.read(topics.fraud_alerts)
    profile = json.loads(first.value or b"")["profile"]
    assert (profile["status"], profile["arrival_time"], profile["age_ms"]) == ("active", 0, None)
    progress = [json.loads(record.value or b"") for record in bank.installed.read(topics.job_progress)]
    assert sum(record["counts"]["missing_profile"] for record in progress) == 0
    # all of the snapshot was there when the first transaction was decided
    batch = next(record for record in progress if record["counts"]["transactions"])
    taken = sum(r["counts"]["profile_changes"] for r in progress if r["batch_id"] <= batch["batch_id"])
    assert taken == ROWS


def test_every_kind_of_change_is_seen_from_its_arrival_on(
    bank: Bank, job: JobProcess, wait_for: WaitFor
) -> None:
    steps = [
        ("card-new", f"INSERT INTO {TABLE} VALUES ('card-new', 'active', 'FR', 'EUR', 5, 0, '2024-01-01')"),
        ("card-2", f"UPDATE {TABLE} SET status = 'blocked' WHERE card_id = 'card-2'"),
        ("card-3", f"DELETE FROM {TABLE} WHERE card_id = 'card-3'"),
    ]
    for card, statement in steps:
        before = bank.use(job, card)[card]["profile"]
        known = len(bank.told(card))
        bank.sql(statement)
        wait_for(lambda c=card, n=known: len(bank.told(c)) > n, deadline_s=PATIENCE_S, what=statement)
        after = bank.use(job, card)[card]
        assert after["profile"] != before
        if after["profile"] is not None:
            assert after["profile"]["age_ms"] >= 0
    assert bank.told("card-3")[-2:] == [("d", None), ("tombstone", None)]
    alerts = bank.use(job, "card-new", "card-2", "card-3")
    assert alerts["card-3"]["profile"] is None
    assert (alerts["card-2"]["decision"], alerts["card-new"]["decision"]) == ("decline", "review")


def test_columns_come_and_go(bank: Bank, job: JobProcess, wait_for: WaitFor) -> None:
    for number, change in enumerate(("ADD COLUMN branch text DEFAULT 'Köln'", "DROP COLUMN branch"), 4):
        card = f"card-{number}"
        bank.sql(
            f"ALTER TABLE {TABLE} {change}",
            f"UPDATE {TABLE} SET status = 'blocked' WHERE card_id = '{card}'",
        )
        wait_for(lambda c=card: bank.told(c)[-1] == ("u", "blocked"), deadline_s=PATIENCE_S, what=change)
        assert bank.use(job, card)[card]["decision"] == "decline"


def test_connector_and_postgres_restart(bank: Bank, job: JobProcess, wait_for: WaitFor) -> None:
    assert bank.connector("POST", "/restart?includeTasks=true") in (200, 202, 204)
    bank.sql(f"UPDATE {TABLE} SET status = 'blocked' WHERE card_id = 'card-6'")
    wait_for(lambda: bank.told("card-6")[-1] == ("u", "blocked"), deadline_s=PATIENCE_S)
    assert embedded.kill(bank.stack_dir, "postgres")
    embedded.up(bank.stack_dir)
    bank.sql(f"UPDATE {TABLE} SET status = 'blocked' WHERE card_id = 'card-7'")
    wait_for(lambda: bank.told("card-7")[-1] == ("u", "blocked"), deadline_s=PATIENCE_S)
    alerts = bank.use(job, "card-6", "card-7", "card-8")
    assert [alert["decision"] for alert in alerts.values()] == ["decline", "decline", "review"]


def test_a_lost_slot_is_repaired_by_reading_the_table_again(
    bank: Bank, job: JobProcess, wait_for: WaitFor
) -> None:
    """Changes that nobody followed; then a snapshot by the connector made anew."""
    assert bank.connector("PUT", "/stop") in (202, 204)
    wait_for(lambda: bank.is_slot_active() is False, deadline_s=PATIENCE_S)
    bank.sql(
        f"SELECT pg_drop_replication_slot('{NAME}')",
        f"UPDATE {TABLE} SET status = 'blocked' WHERE card_id = 'card-9'",
        f"INSERT INTO {TABLE} VALUES ('card-lost', 'active', 'FR', 'EUR', 5, 0, '2024-01-01')",
    )
    before = bank.use(job, "card-9", "card-lost", "card-2")
    assert before["card-9"]["decision"] == "review"
    assert before["card-lost"]["profile"] is None
    wait_for(lambda: bank.connector("DELETE", "/offsets") == 200, deadline_s=PATIENCE_S)
    assert bank.connector("PUT", "/resume") in (202, 204)
    wait_for(lambda: bank.told("card-lost"), deadline_s=PATIENCE_S)
    wait_for(lambda: bank.told("card-9")[-1] == ("r", "blocked"), deadline_s=PATIENCE_S)
    wait_for(lambda: bank.told("card-2")[-1] == ("r", "blocked"), deadline_s=PATIENCE_S)
    after = bank.use(job, "card-9", "card-lost", "card-2")
    assert after["card-9"]["decision"] == "decline"
    assert after["card-9"]["profile"]["age_ms"] >= 0
    # known from now on: what was decided without it stays as it was decided
    assert after["card-lost"]["profile"]["arrival_time"] > before["card-lost"]["arrival_time"]
    assert after["card-2"]["profile"]["status"] == "blocked"


def test_all_of_it_is_what_the_oracle_says(bank: Bank, job: JobProcess) -> None:
    assert job.runs
    bank.installed.audit()
    assert not bank.installed.reasons()

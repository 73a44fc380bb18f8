"""The path of profiles to the alerts, from a table in Postgres that has a connector of its own.

Every accepted transaction is an alert here, and an alert shows its features and the version of the profile
that it was decided with. The tests are one story: each continues where the one before ended, and the audit
covers all of it.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness.bank import NAME, PATIENCE_S, TABLE, Bank
from harness.records import transaction
from typer.testing import CliRunner

from deploy.local import stack as embedded
from deploy.local.stack import Endpoints
from feature_store.catalogue import NAMES
from feature_store.commands import app
from loadtests.faults.installation import world
from loadtests.faults.job_process import JobProcess
from loadtests.oracle.partitions import partition_of
from loadtests.simulator import profiles as simulated
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

WaitFor = Callable[..., Any]
ROWS = 3_000
"""Cards in the first snapshot, beside those of the simulated world."""
HOUR = 3_600_000
EVENTS = 1_500
"""Simulated transactions sent before a change of every profile, and as many after it."""
DISTURBED = {"late": 0.05, "out_of_order": 0.1, "duplicated": 0.05, "future": 0.0, "malformed": 0.0}


@pytest.fixture(scope="module")
def bank(
    stack: Endpoints, stack_dir: Path, topic_names: Callable[[], Topics], tmp_path_factory: Any
) -> Iterator[Bank]:
    result = Bank(stack, stack_dir, topic_names(), tmp_path_factory.mktemp("cdc"))
    yield result
    result.connector("DELETE")


@pytest.fixture(scope="module")
def job(bank: Bank) -> Iterator[JobProcess]:
    with bank.installed.start() as running:
        yield running


def test_the_first_start_waits_for_the_snapshot(bank: Bank, job: JobProcess, wait_for: WaitFor) -> None:
    bank.installed.send_raw([json.dumps(transaction(card_id="card-1")).encode()])
    wait_for(
        lambda: "waiting for the end of Debezium's first snapshot" in job.log or not job.runs,
        deadline_s=PATIENCE_S,
    )
    bank.sql(
        f"INSERT INTO {TABLE} SELECT 'card-' || n, 'active', 'DE', 'EUR', 1000, 1, '2020-01-01' "
        f"FROM generate_series(1, {ROWS}) n"
    )
    simulated_cards = np.flatnonzero(world().cards.has_profile)
    bank.insert([simulated.row(world(), card) for card in simulated_cards])
    assert not bank.progress()
    bank.connect()
    bank.installed.caught_up(job)
    (first,) = bank.alerts()
    profile = first["profile"]
    assert (profile["status"], profile["arrival_time"], profile["age_ms"]) == ("active", 0, None)
    progress = bank.progress()
    assert sum(record["counts"]["missing_profile"] for record in progress) == 0
    assert sum(record["counts"]["profile_changes"] for record in progress) == ROWS + simulated_cards.size
    # the group that decided the first transaction had loaded all rows of its cards by then
    decided = next(number for number, record in enumerate(progress) if record["counts"]["transactions"])
    group = progress[decided]["key_group"]
    loaded = sum(r["counts"]["profile_changes"] for r in progress[: decided + 1] if r["key_group"] == group)
    partitions = {number: partitions_of(bank, progress, number) for number in (0, 1)}
    assert set(partitions[0] + partitions[1]) == {0, 1}
    cards = [f"card-{n}" for n in range(1, ROWS + 1)] + world().cards.ids.take(simulated_cards).to_pylist()
    assert loaded == sum(partition_of(card, 2, "murmur2") in partitions[group] for card in cards)


def partitions_of(bank: Bank, progress: list[dict[str, Any]], group: int) -> list[int]:
    """The partitions of transactions that a key group's newest progress record names."""
    newest = next(record for record in reversed(progress) if record["key_group"] == group)
    topic = bank.installed.topics.transactions
    return [part["partition"] for part in newest["partitions"] if part["topic"] == topic]


def archive(bank: Bank, directory: Path) -> tuple[Path, Path]:
    """Write transactions and profiles as an archive stores them; rows of the snapshot get no arrival."""
    installed = bank.installed
    transactions = [
        {**json.loads(record.value or b""), "arrival_time": record.timestamp}
        for record in installed.read(installed.topics.transactions)
    ]
    profiles = []
    for record in installed.read(installed.topics.profiles):
        change = json.loads(record.value or b"")
        profiles.append(
            {**change["after"], "arrival_time": None if change["op"] == "r" else record.timestamp}
        )
    paths = directory / "transactions.parquet", directory / "profiles.parquet"
    for path, rows in zip(paths, (transactions, profiles), strict=True):
        pq.write_table(pa.Table.from_pylist(rows), path)
    return paths


def test_streamed_features_equal_those_of_the_training_set(
    bank: Bank, job: JobProcess, wait_for: WaitFor, tmp_path: Path
) -> None:
    """Features of the alerts equal those of `fraud features` on the same events, bit for bit."""
    installed = bank.installed
    installed.send(EVENTS, **DISTURBED)
    installed.caught_up(job)
    before = installed.count(installed.topics.profiles)
    bank.sql(f"UPDATE {TABLE} SET credit_limit = credit_limit + 1, risk_tier = 3 - risk_tier")
    wait_for(
        lambda: installed.count(installed.topics.profiles) == 2 * before,
        deadline_s=PATIENCE_S,
        what="Debezium's changes",
    )
    installed.send(EVENTS, **DISTURBED)
    installed.send_raw([json.dumps(transaction(card_id="without-profile")).encode()])
    installed.caught_up(job)
    transactions, profiles = archive(bank, tmp_path)
    output = tmp_path / "features.parquet"
    arguments = ["--transactions", transactions, "--profiles", profiles, "--output", output]
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    table = pq.read_table(output)
    values = np.column_stack([table[name].to_numpy() for name in NAMES])
    identities = zip(table["card_id"].to_pylist(), table["transaction_id"].to_pylist(), strict=True)
    outcomes = table["outcome"].to_pylist()
    wanted = {
        identity: row
        for identity, row, outcome in zip(identities, values, outcomes, strict=True)
        if outcome == "accepted"
    }
    alerts = bank.alerts()
    streamed = {(alert["card_id"], alert["transaction_id"]): alert["features"] for alert in alerts}
    assert len(alerts) == len(streamed) > 1.6 * EVENTS
    assert streamed.keys() == wanted.keys()
    for identity, features in streamed.items():
        result = np.array([np.nan if features[name] is None else features[name] for name in NAMES])
        equal = (result == wanted[identity]) | (np.isnan(result) & np.isnan(wanted[identity]))
        assert result.tobytes() == wanted[identity].tobytes(), np.array(NAMES)[~equal]
    assert {"duplicate"} < set(outcomes)
    assert {alert["features"]["has_profile"] for alert in alerts} == {0.0, 1.0}


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
        known = len(bank.changes(card))
        bank.sql(statement)
        wait_for(lambda c=card, n=known: len(bank.changes(c)) > n, deadline_s=PATIENCE_S, what=statement)
        after = bank.use(job, card)[card]
        assert after["profile"] != before
        if after["profile"] is not None:
            assert after["profile"]["age_ms"] >= 0
    assert bank.changes("card-3")[-2:] == [("d", None), ("tombstone", None)]
    alerts = bank.use(job, "card-new", "card-2", "card-3")
    assert alerts["card-3"]["profile"] is None
    assert (alerts["card-2"]["decision"], alerts["card-new"]["decision"]) == ("decline", "review")


def test_columns_can_be_added_and_dropped(bank: Bank, job: JobProcess, wait_for: WaitFor) -> None:
    for number, change in enumerate(("ADD COLUMN branch text DEFAULT 'Köln'", "DROP COLUMN branch"), 4):
        card = f"card-{number}"
        bank.sql(
            f"ALTER TABLE {TABLE} {change}",
            f"UPDATE {TABLE} SET status = 'blocked' WHERE card_id = '{card}'",
        )
        wait_for(lambda c=card: bank.changes(c)[-1] == ("u", "blocked"), deadline_s=PATIENCE_S, what=change)
        assert bank.use(job, card)[card]["decision"] == "decline"


def test_connector_and_postgres_can_restart(bank: Bank, job: JobProcess, wait_for: WaitFor) -> None:
    before = bank.slot_follower()
    assert bank.connector("POST", "/restart?includeTasks=true") in (200, 202, 204)
    # if Postgres goes away while a task starts, Debezium gives up for good; a running task tries again
    wait_for(lambda: bank.slot_follower() not in (before, None), deadline_s=PATIENCE_S)
    bank.sql(f"UPDATE {TABLE} SET status = 'blocked' WHERE card_id = 'card-6'")
    wait_for(lambda: bank.changes("card-6")[-1] == ("u", "blocked"), deadline_s=PATIENCE_S)
    assert embedded.kill(bank.stack_dir, "postgres")
    embedded.up(bank.stack_dir)
    bank.sql(f"UPDATE {TABLE} SET status = 'blocked' WHERE card_id = 'card-7'")
    wait_for(lambda: bank.changes("card-7")[-1] == ("u", "blocked"), deadline_s=PATIENCE_S)
    alerts = bank.use(job, "card-6", "card-7", "card-8")
    assert [alert["decision"] for alert in alerts.values()] == ["decline", "decline", "review"]


def test_a_lost_slot_is_repaired_by_reading_the_table_again(
    bank: Bank, job: JobProcess, wait_for: WaitFor
) -> None:
    """The table changes without a slot; then the connector, whose offsets are deleted, takes a snapshot."""
    assert bank.connector("PUT", "/stop") in (202, 204)
    wait_for(lambda: bank.slot_follower() is None, deadline_s=PATIENCE_S)
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
    wait_for(lambda: bank.changes("card-lost"), deadline_s=PATIENCE_S)
    wait_for(lambda: bank.changes("card-9")[-1] == ("r", "blocked"), deadline_s=PATIENCE_S)
    wait_for(lambda: bank.changes("card-2")[-1] == ("r", "blocked"), deadline_s=PATIENCE_S)
    after = bank.use(job, "card-9", "card-lost", "card-2")
    assert after["card-9"]["decision"] == "decline"
    assert after["card-9"]["profile"]["age_ms"] >= 0
    # the profile counts from its arrival on: earlier decisions do not change
    assert after["card-lost"]["profile"]["arrival_time"] > before["card-lost"]["arrival_time"]
    assert after["card-2"]["profile"]["status"] == "blocked"


def copy(
    bank: Bank, card: str, op: str, *, number: int = -1, row: Any = None, new_op: str = "", **source: Any
) -> None:
    """Write one of a card's records to its partition once more, with other fields, `op` included."""
    installed = bank.installed
    named = [
        (record, json.loads(record.value))
        for record in installed.read(installed.topics.profiles)
        if record.value and json.loads(record.key or b"")["card_id"] == card
    ]
    record, envelope = [pair for pair in named if pair[1]["op"] == op][number]
    envelope["after"] |= row or {}
    envelope["source"] |= source
    envelope["op"] = new_op or op
    key = json.dumps({"card_id": envelope["after"]["card_id"]}).encode()
    installed.produce(installed.topics.profiles, key, json.dumps(envelope).encode(), record.partition)
    installed.flush()


def ignored(bank: Bank) -> int:
    return sum(record["counts"]["ignored_profile_changes"] for record in bank.progress())


def test_an_older_row_of_debezium_does_not_unblock_a_card(bank: Bank, job: JobProcess) -> None:
    """The first row of card-2 once more, as Debezium sends it after a crash, or a replay of dead letters."""
    before = ignored(bank)
    copy(bank, "card-2", "r", number=0)
    copy(bank, "card-6", "u")  # the block itself once more
    alerts = bank.use(job, "card-2", "card-6")
    assert [alert["profile"]["status"] for alert in alerts.values()] == ["blocked", "blocked"]
    assert before == 0 < ignored(bank)


def test_a_row_of_another_cluster_replaces_the_profile(bank: Bank, job: JobProcess) -> None:
    """Envelopes as a new cluster has them, whose LSNs are low; then changes of the old and of the new one."""
    now = int(time.time() * 1000)
    steps = [
        ("r", "active", 5_000_000_000, now - 2 * HOUR, "review"),
        ("r", "blocked", 7_000, now - 1_000, "decline"),
        ("u", "active", 6_000, now - HOUR, "decline"),
        ("u", "active", 8_000, now, "review"),
    ]
    for op, status, lsn, ts_ms, decision in steps:
        row = {"card_id": "moved", "status": status}
        copy(bank, "card-10", "r", row=row, new_op=op, lsn=lsn, ts_ms=ts_ms)
        assert bank.use(job, "moved")["moved"]["decision"] == decision


def test_a_block_applies_though_a_column_is_wrong(bank: Bank, job: JobProcess) -> None:
    installed = bank.installed
    before = installed.reasons()
    row = {"status": "blocked", "credit_limit": "AeJA"}
    copy(bank, "card-12", "u", lsn=2**61, row=row)
    (alert,) = bank.use(job, "card-12").values()
    assert (alert["decision"], alert["profile"]["status"]) == ("decline", "blocked")
    assert alert["features"]["has_profile"] == 1.0
    assert installed.reasons() - before == {"wrong_type": 1}


def test_all_outcomes_equal_the_oracles(bank: Bank, job: JobProcess) -> None:
    assert job.runs
    bank.installed.audit()
    # only simulated transactions can be late; and one row was written with a wrong column
    assert bank.installed.reasons().keys() == {"too_late", "wrong_type"}

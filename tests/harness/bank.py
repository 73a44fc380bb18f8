"""A bank's table of profiles in Postgres, with its own connector and its own job."""

import http.client
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from deploy.local import connect, state
from deploy.local.stack import Endpoints
from harness.records import transaction
from loadtests.faults.installation import Installation
from loadtests.faults.job_process import JobProcess
from loadtests.simulator.rollouts import publish
from models.policy import Policy
from models.rollouts.events import installation
from streaming_job.contracts.topics import Topics

NAME = "cdc"
"""Name of connector, slot, publication and topic prefix."""
TABLE = "cdc_profiles"
OTHER = "zz_others"
"""Another table of the connector, read after TABLE: so no row of TABLE is the last of the snapshot."""
PATIENCE_S = 180.0


class Bank:
    """The table, its connector, and the job that reads the changes.

    A policy with threshold 0 makes every transaction an alert, and an alert shows the version of the profile
    that it was decided with, and all features.
    """

    def __init__(self, stack: Endpoints, stack_dir: Path, topics: Topics, directory: Path) -> None:
        """Create topics and table, and make a model with that policy the champion; no connector, no job.

        Args:
            topics: unique names; that of the profiles is replaced by the topic that the connector writes.
            directory: for checkpoint, working copies and logs.
        """
        self.stack, self.stack_dir = stack, stack_dir
        topics = topics.model_copy(update={"profiles": f"{NAME}.public.{TABLE}"})
        self.installed = Installation(stack, topics, directory, wait_for_snapshot_s=int(PATIENCE_S))
        model = self.installed.roll_out().model
        policy, now = Policy(0.0, 10_000), int(time.time() * 1000)
        everything = installation(model, policy, "everything", "test", now)
        publish(everything, stack.bootstrap_servers, topics.model_rollouts)
        self.sql(
            f"CREATE TABLE {TABLE} (LIKE card_profiles INCLUDING ALL)",
            f"CREATE TABLE {OTHER} (n int PRIMARY KEY)",
            f"INSERT INTO {OTHER} VALUES (1)",
        )

    def sql(self, *statements: str) -> None:
        """Run statements, each in its own transaction."""
        with psycopg.connect(self.stack.postgres_dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]

    def insert(self, rows: list[dict[str, object]]) -> None:
        """Insert rows, each a value by column; all in one transaction."""
        names = list(rows[0])
        values = ", ".join(f"%({name})s" for name in names)
        with psycopg.connect(self.stack.postgres_dsn) as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {TABLE} ({', '.join(names)}) VALUES ({values})", rows)  # type: ignore[arg-type]

    def slot_follower(self) -> int | None:
        """Process id of the Postgres backend that streams the slot; None without a slot or a reader of it."""
        with psycopg.connect(self.stack.postgres_dsn) as connection:
            row = connection.execute(
                "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [NAME]
            ).fetchone()
        return row[0] if row else None

    def connector(self, method: str, path: str = "", body: object = None) -> int:
        """Call Connect's REST interface about the connector; returns the HTTP status."""
        url = urlsplit(self.stack.connect_url)
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
        try:
            payload = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            connection.request(method, f"/connectors/{NAME}{path}", payload, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def connect(self) -> None:
        """Make the connector: like the stack's own, for another table, and for one that it reads after it."""
        config = {
            **connect.connector_config(self.stack_dir, state.load(self.stack_dir).ports),
            "topic.prefix": NAME, "slot.name": NAME, "publication.name": NAME,
            "table.include.list": f"public.{TABLE},public.{OTHER}",
        }  # fmt: skip
        assert self.connector("PUT", "/config", config) in (200, 201)

    def changes(self, card: str) -> list[tuple[str, str | None]]:
        """A card's records on the profiles' topic, as (op, status); without a value: ("tombstone", None)."""
        result: list[tuple[str, str | None]] = []
        for record in self.installed.read(self.installed.topics.profiles):
            if json.loads(record.key or b"")["card_id"] == card:
                envelope = json.loads(record.value) if record.value else {"op": "tombstone"}
                result.append((envelope["op"], (envelope.get("after") or {}).get("status")))
        return result

    def alerts(self) -> list[dict[str, Any]]:
        """All alerts so far."""
        return [json.loads(r.value or b"") for r in self.installed.read(self.installed.topics.fraud_alerts)]

    def progress(self) -> list[dict[str, Any]]:
        """All progress records so far, as they were written."""
        return [json.loads(record.value or b"") for record in self.installed.progress()]

    def use(self, job: JobProcess, *cards: str) -> dict[str, dict[str, Any]]:
        """Send a transaction of each card, wait until it is decided, and return the alerts by card."""
        sent = {card: transaction(card_id=card) for card in cards}
        self.installed.send_raw([json.dumps(fields).encode() for fields in sent.values()])
        self.installed.caught_up(job)
        by_id = {alert["transaction_id"]: alert for alert in self.alerts()}
        return {card: by_id[fields["transaction_id"]] for card, fields in sent.items()}

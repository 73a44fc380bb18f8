"""Kafka Connect: one distributed worker, with Debezium's connector from Postgres to the profiles topic."""

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.local import jars, kafka, postgres, processes
from deploy.local.console import Progress
from deploy.local.errors import StackError
from deploy.local.ports import HOST
from deploy.local.processes import Server

CONNECTOR = "card-profiles"
PATIENCE_S = 180.0
REQUEST_S = 10.0
SNAPSHOT_S = 600.0
"""Longest wait for the first snapshot of a table that is already large, seconds."""
SLOT = "card_fraud"

PROPERTIES_FILE = Path(__file__).with_name("worker.properties")

HEAP = ("-Xms96m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def start(data_dir: Path, ports: Mapping[str, int], progress: Progress) -> Server:
    """Start the worker; its connectors and offsets are stored in Kafka."""
    home = data_dir / "connect"
    home.mkdir(parents=True, exist_ok=True)
    properties = home / "worker.properties"
    properties.write_text(
        PROPERTIES_FILE.read_text().format(
            host=HOST, connect=ports["connect"], bootstrap_servers=kafka.bootstrap_servers(ports)
        )
    )
    command = kafka.java_command(HEAP, jars.class_path("connect", progress), marker(data_dir))
    return processes.spawn(
        [*command, "org.apache.kafka.connect.cli.ConnectDistributed", str(properties)],
        marker=marker(data_dir), log=data_dir / "logs" / "connect.log", cwd=home, env=kafka.environment(),
    )  # fmt: skip


def marker(data_dir: Path) -> str:
    """Return the argument that identifies this directory's server among all processes."""
    return f"-Dcard-fraud.server={data_dir / 'connect'}"


def wait(data_dir: Path, server: Server, ports: Mapping[str, int]) -> None:
    """Wait for the worker, configure the connector and wait until it runs.

    Raises:
        StackError: the worker ended, the worker or the connector is not ready at its deadline, Connect's
            port belongs to another program, or the file with the password of Postgres is missing.
    """
    log = data_dir / "logs" / "connect.log"
    config = connector_config(data_dir, ports)

    def accepted() -> bool:
        # 409 while the worker joins its group
        return _request(ports, "PUT", f"/connectors/{CONNECTOR}/config", config)[0] in (200, 201)

    def streams() -> bool:
        states = connector_states(ports)
        if "FAILED" in states:
            _request(ports, "POST", f"/connectors/{CONNECTOR}/restart?includeTasks=true&onlyFailed=true")
        # a task that waits for a retry is RUNNING, too: only Postgres knows whether the task reads the slot
        return bool(states) and set(states) == {"RUNNING"} and postgres.replicates(data_dir, ports, SLOT)

    processes.wait_until(accepted, server=server, name="connect", log=log, deadline_s=PATIENCE_S)
    processes.wait_until(streams, server=server, name="Debezium's connector", log=log, deadline_s=SNAPSHOT_S)


def connector_config(data_dir: Path, ports: Mapping[str, int]) -> dict[str, str]:
    """Build Debezium's configuration; the REST interface shows only the path of the password's file."""
    secret = data_dir / "connect" / "secret.properties"
    secret.touch(mode=0o600)
    secret.write_text(f"password={postgres.password(data_dir)}\n")
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "topic.prefix": "bank",
        "database.hostname": HOST,
        "database.port": str(ports["postgres"]),
        "database.dbname": postgres.DATABASE,
        "database.user": postgres.USER,
        "database.password": f"${{file:{secret}:password}}",
        "plugin.name": "pgoutput",
        "slot.name": SLOT,
        "publication.name": "card_fraud",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.card_profiles",
        "snapshot.mode": "initial",
        "decimal.handling.mode": "double",
        "tombstones.on.delete": "true",
        # how long a change may wait for a batch; half a second by default
        "poll.interval.ms": "100",
        # a failing status update reveals the loss of Postgres (by default only after 10 s); then the task is
        # restarted after 1 s, as often as necessary
        "status.update.interval.ms": "1000",
        "retriable.restart.connector.wait.ms": "1000",
        "errors.max.retries": "-1",
        # each start of the task tries for a minute to connect to the slot
        "slot.max.retries": "60",
        "slot.retry.delay.ms": "1000",
        # a heartbeat when nothing changes; Connect creates the heartbeat's topic
        "heartbeat.interval.ms": "5000",
        "topic.creation.default.replication.factor": "-1",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.cleanup.policy": "compact",
    }


def connector_states(ports: Mapping[str, int]) -> list[str]:
    """Return the states (RUNNING, FAILED ...) of connector and tasks; empty without a task or an answer."""
    status, answer = _request(ports, "GET", f"/connectors/{CONNECTOR}/status")
    if status != 200 or not answer["tasks"]:
        return []
    return [answer["connector"]["state"], *(task["state"] for task in answer["tasks"])]


def failure(ports: Mapping[str, int]) -> str | None:
    """Return the first line of the trace of a failed connector or task; None without failure or answer."""
    status, answer = _request(ports, "GET", f"/connectors/{CONNECTOR}/status")
    parts = [answer["connector"], *answer["tasks"]] if status == 200 else []
    failed = [part for part in parts if part["state"] == "FAILED"]
    return (failed[0].get("trace") or "no trace").splitlines()[0] if failed else None


def _request(ports: Mapping[str, int], method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Call the REST interface; return HTTP status and decoded answer, or (0, None) without an answer."""
    connection = http.client.HTTPConnection(HOST, ports["connect"], timeout=REQUEST_S)
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    except (OSError, http.client.HTTPException):
        return 0, None
    except ValueError as error:
        raise StackError(
            f"port {ports['connect']} does not answer like Kafka Connect: check the port"
        ) from error
    finally:
        connection.close()

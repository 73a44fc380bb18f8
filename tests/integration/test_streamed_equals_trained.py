"""Features captured from the running job equal `fraud features` on the same events, bit for bit.

A policy with threshold 0 makes every decided transaction an alert, and an alert carries its features.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from feature_store.catalogue import NAMES
from feature_store.commands import app
from loadtests.faults.installation import Installation, trained, world
from loadtests.simulator.profiles import ProfileLoader
from models.policy import Policy
from models.rollouts import Rollout, publish
from streaming_job.decode import strict

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def archive(installed: Installation, directory: Path) -> tuple[Path, Path]:
    """The topics as an archive keeps them: transactions and profiles with their times of arrival."""
    transactions = [
        {**json.loads(record.value or b""), "arrival_time": record.timestamp}
        for record in installed.read(installed.topics.transactions)
    ]
    profiles = []
    for record in installed.read(installed.topics.profiles):
        try:
            change = strict.parse_object(record.value)
        except strict.Rejected:  # a tombstone, or what another test left on the topic
            continue
        if change.get("after"):
            profiles.append(
                {**change["after"], "arrival_time": None if change["op"] == "r" else record.timestamp}
            )
    paths = directory / "transactions.parquet", directory / "profiles.parquet"
    for path, rows in zip(paths, (transactions, profiles), strict=True):
        pq.write_table(pa.Table.from_pylist(rows), path)
    return paths


def test_streamed_features_are_the_training_sets(
    installed: Installation, tmp_path: Path, wait_for: Callable[..., object]
) -> None:
    model = trained(installed.stack.mlflow_tracking_uri).ref
    everything = Rollout("everything", model, Policy(0.0, 1000), "test", int(time.time() * 1000))
    publish(everything, installed.stack.bootstrap_servers, installed.topics.model_rollouts)
    ProfileLoader(installed.stack.postgres_dsn).load(world())
    with installed.start() as job:
        installed.send(1_500, late=0.05, out_of_order=0.1, duplicated=0.05, malformed=0.0)
        installed.caught_up(job)
        before = len(installed.read(installed.topics.profiles))
        with psycopg.connect(installed.stack.postgres_dsn) as postgres:
            changed = postgres.execute(
                "update card_profiles set credit_limit = credit_limit + 1, risk_tier = 3 - risk_tier"
            ).rowcount
        wait_for(
            lambda: len(installed.read(installed.topics.profiles)) >= before + changed,
            deadline_s=60,
            what="Debezium's changes",
        )
        installed.send(1_500, late=0.05, out_of_order=0.1, duplicated=0.05, malformed=0.0)
        installed.caught_up(job)
    alerts = [json.loads(record.value or b"") for record in installed.read(installed.topics.fraud_alerts)]
    transactions, profiles = archive(installed, tmp_path)
    output = tmp_path / "features.parquet"
    arguments = ["--transactions", transactions, "--profiles", profiles, "--output", output]
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    made = pq.read_table(output)
    values = np.column_stack([made[name].to_numpy() for name in NAMES])
    rows = zip(
        made["card_id"].to_pylist(),
        made["transaction_id"].to_pylist(),
        made["outcome"].to_pylist(),
        strict=True,
    )
    wanted = {
        (card, tx): values[row].tobytes()
        for row, (card, tx, outcome) in enumerate(rows)
        if outcome == "accepted"
    }
    streamed = {(alert["card_id"], alert["transaction_id"]): alert["features"] for alert in alerts}
    assert len(alerts) == len(streamed) > 2_500
    assert streamed.keys() == wanted.keys()
    for identity, features in streamed.items():
        found = np.array([np.nan if features[name] is None else features[name] for name in NAMES])
        expected = np.frombuffer(wanted[identity])
        different = [
            name for name, a, b in zip(NAMES, found, expected, strict=True) if a != b and (a == a or b == b)
        ]
        assert found.tobytes() == expected.tobytes(), different
    assert {"duplicate"} < set(made["outcome"].to_pylist())
    assert {alert["features"]["has_profile"] for alert in alerts} == {0.0, 1.0}

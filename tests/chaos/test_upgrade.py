"""A running installation gets a release that computes one more feature, and a model that uses it.

The next release is this one, changed as a developer would change it: it is started again in the place of the
old one, or takes over from it while it runs. Transactions keep flowing; at the end the next release's own
audit is clean for the time before and after the upgrade.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from harness.newcomer import A_FEATURE, ROOT
from thoroughness import only_thorough

from deploy.local.launch import FRAUD
from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation, query_of, world
from loadtests.faults.relay import Relay
from loadtests.faults.repeater import Repeater
from loadtests.simulator import profiles
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200), only_thorough]

PACKAGES = ("deploy", "feature_store", "loadtests", "models", "service", "streaming_job")
FEATURE = "minute_of_hour"
MODEL = "next"
PACE_S = 0.2
EVENTS = 60
"""Number of transactions sent every PACE_S seconds."""


@pytest.fixture
def relay(stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path) -> Iterator[Relay]:
    """A running job of this release, on an installation of its own for each test."""
    installed = Installation(stack, topic_names(), tmp_path / "installed")
    installed.roll_out()
    profiles.load(stack.postgres_dsn, world())
    result = Relay(installed)
    try:
        yield result
    finally:
        result.job.kill()


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The next release's packages."""
    result = tmp_path / "release"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, result / package, ignore=shutil.ignore_patterns("__pycache__"))
    A_FEATURE.edit(result)
    return result


def run(release: Path, installed: Installation, *command: str, exit_code: int = 0) -> str:
    """Run a command of the next release, with the installation's settings; returns what it prints."""
    done = subprocess.run(
        [*FRAUD, *command],
        cwd=release, env={**os.environ, **installed.environment()}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == exit_code, done.stdout
    return done.stdout


def transactions(installed: Installation) -> Repeater:
    """Return a context manager that sends transactions until it is left."""
    return Repeater(lambda: installed.send(EVENTS, late=0.02, duplicated=0.03), PACE_S)


def newest_alert(installed: Installation) -> dict[str, Any]:
    alerts = [json.loads(record.value or b"") for record in installed.read(installed.topics.fraud_alerts)]
    return max(alerts, key=lambda alert: alert["arrival_time"])


def start_again(relay: Relay, release: Path) -> None:
    """Stop the job, and start the next release on its checkpoint."""
    assert relay.job.terminate() == 0, relay.job.log
    relay.restart(release)


def take_over(relay: Relay, release: Path) -> None:
    """Start the next release beside the job, with a checkpoint of its own."""
    old, before = relay.job, relay.installed.settings.checkpoint
    successor = relay.installed.start(
        release,
        checkpoint=str(relay.installed.directory / "successor"),
        predecessor=query_of(before),
        predecessor_checkpoint=before,
        epoch_s=2.0,
    )
    relay.job = successor
    relay.until(lambda: not old.runs, "the takeover")
    assert old.exit_code() == 3, old.log


@pytest.mark.parametrize("upgrade", [start_again, take_over])
def test_a_release_with_one_more_feature_is_installed_and_runs_a_model_that_uses_it(
    relay: Relay, release: Path, tmp_path: Path, upgrade: Callable[[Relay, Path], None]
) -> None:
    installed, history = relay.installed, tmp_path / "history.parquet"
    stream = Stream(world(), rate=0.05, start_ms=1_750_000_000_000, disturbances=Disturbances.none())
    table = pa.concat_tables(batch.table for batch in stream.blocks(events=20_000))
    pyarrow.parquet.write_table(table, history)
    trained = run(
        release, installed, "models", "train", "--transactions", str(history), "--iterations", "20",
        "--alert-budget", "0.02", "--name", MODEL,
    )  # fmt: skip
    promote = ("rollouts", "propose", *trained.split("fraud rollouts propose ")[1].split())
    with transactions(installed):
        relay.until(relay.job.epochs, "an epoch")
        # the next release's model cannot be promoted before that release runs
        refused = run(release, installed, *promote, exit_code=1)
        assert f"does not compute {FEATURE}:1" in refused
        upgrade(relay, release)
        relay.until(relay.job.epochs, "an epoch of the next release")
        run(release, installed, *promote)
        relay.until(lambda: newest_alert(installed)["model"]["name"] == MODEL, "alerts by the next model")
    installed.caught_up(relay.job)
    alert = newest_alert(installed)
    assert FEATURE in alert["features"]
    report = tmp_path / "report.json"
    run(release, installed, "verify", "--report", str(report))
    assert json.loads(report.read_text())["events"] == installed.sent

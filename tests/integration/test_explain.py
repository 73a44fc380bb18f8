"""`fraud explain-card` beside the running job: what it tells is what the alerts said."""

import json
import os
import subprocess
import sys

import pytest
from harness.records import transaction

from loadtests.faults.installation import Installation

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def explain(checkpoint: str, card: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own: it starts Spark."""
    command = [sys.executable, "-m", "deploy.cli", "explain-card", card, "--checkpoint", checkpoint, *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "120"}
    )


def test_a_card_is_explained_while_the_job_runs(installed: Installation) -> None:
    with installed.start() as job:
        installed.send(1_000)
        card = str(transaction()["card_id"])
        for amount in (10, 20, 30):
            installed.send_raw([json.dumps(transaction(amount=amount)).encode()], key=card.encode())
        installed.caught_up(job)
        checkpoint = str(installed.settings.checkpoint)
        told = explain(checkpoint, card, "--json")
        assert told.returncode == 0, told.stderr
        known = json.loads(told.stdout)
        assert known["card_id"] == card
        assert known["windows"]["5m"]["count"] >= 3
        assert known["windows"]["5m"]["sum"] >= 60
        assert known["transactions"] >= 3
        table = explain(checkpoint, card)
        assert "as of the last event" in table.stdout
        assert "suspicious_count" in table.stdout
        stranger = explain(checkpoint, "card-of-nobody")
        assert stranger.returncode == 1
        assert stranger.stderr.splitlines()[-1] == (
            "error: card ca***dy is not in the job's state; check the id and the checkpoint"
        )
        assert job.runs


def test_without_a_checkpoint_it_says_so(tmp_path) -> None:
    nothing = explain(str(tmp_path / "none"), "c")
    assert nothing.returncode == 1
    assert nothing.stderr.splitlines()[-1].endswith("give the checkpoint of a job that has run")

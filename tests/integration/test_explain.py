"""`fraud explain-card` beside the running job: what it tells is what the alerts said."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.records import transaction

from loadtests.faults.installation import Installation
from streaming_job.explain import UnknownCardError, look_up
from streaming_job.runtime.checkpoint import CheckpointError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_card_is_explained_while_the_job_runs(
    installed: Installation, wait_for: Callable[..., object]
) -> None:
    with installed.start(epoch_s=1) as job:
        installed.send(1_000)
        card = str(transaction()["card_id"])
        for amount in (10, 20, 30):
            installed.send_raw([json.dumps(transaction(amount=amount)).encode()])
        installed.caught_up(job)
        ended = job.epochs()
        wait_for(lambda: job.epochs() > ended + 1, deadline_s=60, what="an epoch after that")

        checkpoint = str(installed.settings.checkpoint)
        known = look_up(card, checkpoint)
        assert known["card_id"] == card
        assert known["windows"]["5m"]["count"] >= 3
        assert known["windows"]["5m"]["sum"] >= 60
        assert known["transactions"] >= 3
        with pytest.raises(UnknownCardError, match=r"card ca\*\*\*dy is not in the job's state"):
            look_up("card-of-nobody", checkpoint)

        told = subprocess.run(
            [sys.executable, "-m", "deploy.cli", "explain-card", card, "--checkpoint", checkpoint],
            env={**os.environ, "COLUMNS": "120"}, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        assert f"transactions {known['transactions']:,}, " in told.stdout
        assert "as of the last event" in told.stdout
        assert "suspicious_count" in told.stdout

        assert job.runs
        job.process.send_signal(signal.SIGINT)  # Ctrl-C
        assert job.ended() == 0


def test_without_a_checkpoint_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="give the checkpoint of a job that has run"):
        look_up("c", str(tmp_path / "none"))

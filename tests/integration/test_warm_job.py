"""A job is measured only once its epochs have their full length, which takes longer where it never ran."""

from pathlib import Path
from typing import Any

import pytest

from loadtests.bench.rig import BURST, Rig, RigOptions
from loadtests.faults.installation import Installation

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
SHORT = 12
"""Number of short epochs; many more than end before the job has caught up."""


def test_a_warm_job_has_decided_and_its_short_epochs_have_ended(
    installed: Installation, tmp_path: Path
) -> None:
    installed.settings = installed.settings.model_copy(update={"warm_up_epochs": SHORT})
    champion: Any = None  # it is not measured
    system, said = Rig(RigOptions(tmp_path), installed, champion), list[str]()
    system.start_warm_job(said.append)
    try:
        assert system.job.epochs() >= SHORT
        assert not installed.lag()
        assert installed.sent == BURST
        assert any(f"of the job's {SHORT} short first epochs" in text for text in said)
    finally:
        system.kill_job()

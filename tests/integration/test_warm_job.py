"""The job of a load test compiles its kernels before the load, also where no job has run before."""

from pathlib import Path
from typing import Any

import pytest
from thoroughness import only_thorough

from loadtests.bench.rig import Plan, Rig
from loadtests.faults.installation import UNDISTURBED, Installation

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), only_thorough]


def test_a_warm_job_compiles_nothing_under_load(
    installed: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))

    def compiled() -> set[str]:
        return {path.name for path in (tmp_path / "kernels").rglob("*.nbi")}

    champion: Any = None  # it is not measured
    system = Rig(Plan(tmp_path), installed, champion)
    said: list[str] = []
    system.start_warm_job(said.append)
    try:
        before = compiled()
        assert len(before) > 40
        installed.send(10_000, **UNDISTURBED)
        system.catch_up(said.append)
        assert compiled() == before
    finally:
        system.kill_job()

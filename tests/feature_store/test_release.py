"""The release names the sources that decide."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.local.launch import FRAUD
from feature_store.release import DECIDING, RELEASE, sources_digest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources, copied as to another machine: other paths and times, no compiled files."""
    for package in DECIDING:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_same_sources_have_the_same_digest_on_another_machine(copy: Path) -> None:
    assert RELEASE.endswith(f"+{sources_digest(DECIDING, copy)[:8]}")
    assert re.fullmatch(r"[^+ ]+\+[0-9a-f]{8}", RELEASE)


@pytest.mark.parametrize(
    "name",
    ["feature_store/kernels/windows.py", "models/policy.py", "streaming_job/contracts/alert.v1.json"],
)
def test_any_change_of_a_source_changes_the_digest(copy: Path, name: str) -> None:
    before, path = sources_digest(DECIDING, copy), copy / name
    path.write_bytes(path.read_bytes() + b"\n")
    changed = sources_digest(DECIDING, copy)
    path.rename(path.with_stem("renamed"))
    assert len({before, changed, sources_digest(DECIDING, copy)}) == 3


def test_the_command_line_prints_the_release() -> None:
    done = subprocess.run(
        [*FRAUD, "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"fraud {RELEASE}\n"

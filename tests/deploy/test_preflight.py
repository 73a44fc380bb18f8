import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import preflight, setup_venv
from deploy.local.preflight import PreflightError

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", ["preflight", "setup_venv"])
def test_it_runs_before_any_package_is_installed(module: str) -> None:
    """Import the module without site-packages: it runs before the virtual environment exists."""
    code = f"import deploy.local.{module}"
    done = subprocess.run([sys.executable, "-S", "-E", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("version", [(3, 10), (3, 15)])
def test_other_pythons_are_refused(version: tuple[int, int]) -> None:
    with pytest.raises(PreflightError, match=rf"this is Python 3\.{version[1]}; .* make PYTHON=PATH"):
        preflight.check_python(setup=False, version=version)


def test_full_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"GiB are free for .* make room"):
        preflight.check_disk(tmp_path, 2**62)


def test_missing_java_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deploy.local.preflight"]
    environment = {"JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: JAVA_HOME is ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        (
            "WARNING: Retrying ... NewConnectionError('...: Failed to establish')",
            "no package index is reachable",
        ),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "not the one"),
        ("Collecting x\nERROR: Failed building wheel for x\n", "Failed building wheel for x"),
        ("", "it printed nothing"),
    ],
)
def test_pips_failures_are_explained_in_one_line(output: str, meaning: str) -> None:
    explained = setup_venv.explain(output)
    assert meaning in explained
    assert "\n" not in explained


def test_stamp_changes_with_the_lock(tmp_path: Path) -> None:
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_text("x==1\n")
    before = setup_venv.fingerprint(tmp_path)
    assert setup_venv.fingerprint(tmp_path) == before
    (tmp_path / "requirements.lock").write_text("x==2\n")
    assert setup_venv.fingerprint(tmp_path) != before


def test_a_current_stamp_installs_nothing(tmp_path: Path) -> None:
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_text("x==1\n")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / setup_venv.STAMP).write_text(setup_venv.fingerprint(tmp_path))
    setup_venv.ensure(tmp_path, lambda line: pytest.fail(line))


def test_the_lock_pins_every_package_and_names_no_host() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert "--index-url" not in lock
    for block in lock.replace("\\\n", " ").splitlines():
        assert block.startswith("#") or not block.strip() or ("==" in block and "--hash=sha256:" in block)
    assert "pyspark==4.2.0" in lock
    assert "setuptools==" in lock


def test_packages_that_share_files_are_installed_by_the_same_pip() -> None:
    names = ("a", "mlflow", "b", "pyspark", "mlflow-skinny", "c")
    entries = [f"{name}==1.0 \\\n    --hash=sha256:0\n" for name in names]
    parts = setup_venv._parts(entries)
    assert sorted(entry for part in parts for entry in part) == sorted(entries)
    assert sorted(len(part) for part in parts) == [1, 1, 2, 2]
    assert any(set(part) >= {entries[1], entries[4]} for part in parts)

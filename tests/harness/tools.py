"""Programs that single tests need besides those of `make test`: a test is skipped while a program is missing.

REQUIRED_TOOLS names the programs, separated by spaces, without which a test fails instead.
"""

import os
import shutil

import pytest

from loadtests.compare.kafka_streams.build import compiler

SOURCES = {
    "promtool": "apt install prometheus",
    "prometheus": "apt install prometheus",
    "chromium": "apt install chromium",
    "chromedriver": "apt install chromium-driver",
    "systemd-analyze": "apt install systemd",
    "buildah": "apt install buildah",
    "mmdebstrap": "apt install mmdebstrap",
    "podman": "apt install podman",
    "runc": "apt install runc",
    "kubectl": "install kubectl",
    "javac": "install a JDK beside the java in use",
    "schemathesis": "pipx install schemathesis",
    "moto_server": "pipx install 'moto[s3,server]'",
}
"""How to install each program."""
ALSO_NAMED = {"chromium": ("chromium-browser", "google-chrome")}
REQUIRED = frozenset(os.environ.get("REQUIRED_TOOLS", "").split())


def needs(*programs: str) -> pytest.MarkDecorator:
    """Mark a test that runs programs of SOURCES."""
    if unknown := {*programs} - {*SOURCES}:
        raise ValueError(f"not in SOURCES: {unknown}")
    return pytest.mark.needs(*programs)


def find(program: str) -> str | None:
    """Return the path of a program; None if it is not installed."""
    if program == "javac":  # the `java` on the PATH may be a link out of the JDK
        found = compiler()
        return str(found) if found else None
    names = (os.environ.get(program.upper()), program, *ALSO_NAMED.get(program, ()))
    return next((path for name in names if name and (path := shutil.which(name))), None)


def skip_without_tools(item: pytest.Item) -> None:
    """Skip a test of which a program is missing, or fail it if REQUIRED_TOOLS names the program."""
    for program in (name for mark in item.iter_markers("needs") for name in mark.args):
        if find(program) is not None:
            continue
        if program in REQUIRED:
            pytest.fail(f"{program} is in REQUIRED_TOOLS, but not on the PATH", pytrace=False)
        pytest.skip(f"needs {program}: {SOURCES[program]}")

"""`make test-kubernetes`: build components and images, and run the tests that need a cluster."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.kubernetes import COMPONENTS, DIRECTORY, ROOT, components, images

TESTS = ("tests/deploy/kubernetes", "tests/integration/test_kubernetes.py")
PROGRAMS = {
    "containerd": "containerd",
    "runc": "runc",
    "conntrack": "conntrack",
    "iptables": "iptables",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "buildah": "buildah",
    "podman": "podman",
    "mmdebstrap": "mmdebstrap",
}
"""Program -> its package of Debian."""
GO = "/usr/local/go/bin/go"
CGROUPS = Path("/sys/fs/cgroup")


def missing() -> str:
    """Return in words what is missing; empty if nothing is."""
    if os.geteuid() != 0:
        return "root"
    if not find_go():
        return "Go (go.mod of tests/harness/kubernetes/components says which)"
    packages = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    return f"apt install {' '.join(packages)}" if packages else ""


def find_go() -> str | None:
    """Return the path of the Go command."""
    return shutil.which("go") or shutil.which(GO)


def main(arguments: list[str]) -> int:
    """Run the tests; return pytest's status.

    Args:
        arguments: of pytest.
    """
    if lacking := missing():
        print(f"make test-kubernetes is skipped: it needs {lacking}")
        return 0
    programs = components.build(str(find_go()))
    images.export(programs / "pause", DIRECTORY / "images")
    own = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*own, sys.executable, "-m", "pytest", *TESTS, *arguments]
    variables = {**os.environ, COMPONENTS: str(programs), "KUBECTL": str(programs / "kubectl")}
    try:
        return subprocess.run(command, env=variables, cwd=ROOT).returncode
    finally:
        _remove_groups()


def _remove_groups() -> None:
    """Remove the control groups of pods, which are empty now."""
    for hierarchy in CGROUPS.iterdir():
        for group, _, _ in os.walk(hierarchy / "kubepods", topdown=False):
            os.rmdir(group)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

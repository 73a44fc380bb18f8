"""The images of production, built on this machine and run by podman without a daemon."""

import json
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from deploy.local.child import Child
from deploy.local.ports import HOST, free_port

ROOT = Path(__file__).parents[2]
BASE = "localhost/debian:bookworm-slim"
USER = 10001
PROCESSES = 16_384
STATE = "/var/lib/card-fraud"
"""Where an image keeps checkpoint and working copies."""
PODMAN = ("podman", "--storage-driver", "overlay")
SECRETS = {"ca": "/etc/ssl/certs/ca-certificates.crt", "cacerts": "/etc/ssl/certs/java/cacerts"}
"""Certificates of this machine, which its package indexes may need."""


def build(directory: Path) -> None:
    """Build the images with `make images`, on a Debian of this machine's mirror if there is no base yet."""
    if subprocess.run([*PODMAN, "image", "exists", BASE]).returncode:
        archive = directory / "base.tar"
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates", "bookworm", archive],
            check=True,
        )
        subprocess.run([*PODMAN, "import", archive, BASE], check=True)
        archive.unlink()
    pip = directory / "pip.conf"
    pip.write_text(_pip_configuration())
    given = {"pip": str(pip), **{name: path for name, path in SECRETS.items() if Path(path).exists()}}
    secrets = " ".join(f"--secret id={name},src={path}" for name, path in given.items())
    # the environment is that of the running tests: it is not made again
    make = ["make", "--old-file=setup", "images", f"BIN={Path(sys.executable).parent}", f"ARGS={secrets}"]
    subprocess.run(make, cwd=ROOT, check=True)


def _pip_configuration() -> str:
    """Return this machine's settings of pip, but for directories of its own."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    values = dict(re.findall(r"^[\w:.]+\.([a-z-]+)='(.*)'$", listed, re.MULTILINE))
    values = {
        name: value for name, value in values.items() if name in ("index-url", "extra-index-url", "timeout")
    }
    values["cert"] = SECRETS["ca"]
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in values.items())


class Container(Child):
    """A container with a read-only root file system, on the network of this machine.

    It can stand for the job's process: signals to podman reach the container's first process.
    """

    def __init__(
        self,
        image: str,
        command: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        *,
        name: str,
        memory: str = "3g",
    ) -> None:
        """Start it.

        Args:
            directory: is STATE of the container; its log is beside it.
            environment: variables of the container; it gets none of this process.
        """
        state = directory / "state"
        state.mkdir(parents=True, exist_ok=True)
        for path in (state, *state.rglob("*")):
            os.chown(path, USER, USER)
        self._name = name
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # podman's own would exceed the machine's
        options = [
            "--runtime", "runc", "--network", "host", "--rm",
            "--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={PROCESSES}:{PROCESSES}",
            "--read-only", "--read-only-tmpfs=false", "--memory", memory,
            "--cap-drop", "all", "--security-opt", "no-new-privileges",
            "--tmpfs", "/tmp:rw,exec,size=1g,mode=1777", "--volume", f"{state}:{STATE}", "--name", name,
        ]  # fmt: skip
        for variable, value in environment.items():
            options += ["--env", f"{variable}={value}"]
        super().__init__(
            f"the container {name}",
            [*PODMAN, "run", *options, image, *command],
            directory / f"{name}.log",
        )

    def kill(self) -> None:
        """Kill the container, and podman with it."""
        subprocess.run([*PODMAN, "kill", "--signal", "KILL", self._name], capture_output=True)
        super().kill()
        subprocess.run([*PODMAN, "rm", "--force", self._name], capture_output=True)


def inspect(image: str) -> dict:
    """Return podman's description of an image: its size, user, labels and others."""
    shown = subprocess.run([*PODMAN, "image", "inspect", image], capture_output=True, check=True)
    return json.loads(shown.stdout)[0]


class MlflowServer(Child):
    """MLflow with its artifacts behind HTTP, as production has it: images have no driver of its database."""

    def __init__(self, directory: Path, host: str = HOST, port: int = 0) -> None:
        """Start it, on a free port if none is given, and wait until it listens."""
        directory.mkdir()
        port = port or free_port()
        self.uri = f"http://{host}:{port}"
        super().__init__(
            "MLflow",
            [
                str(Path(sys.executable).with_name("mlflow")), "server", "--workers", "1",
                "--backend-store-uri", f"sqlite:///{directory}/mlflow.db",
                "--artifacts-destination", str(directory / "artifacts"), "--host", host, "--port", str(port),
                "--allowed-hosts", "*",
            ],
            directory / "mlflow.log",
            {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "DO_NOT_TRACK": "true"},
        )  # fmt: skip
        self.wait_until(lambda: _listens(host, port), 180)


def _listens(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False

"""Sidecar and, if installed, Prometheus as child processes, queried over HTTP."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.demo.environment import free_port
from deploy.local.ports import HOST
from deploy.prometheus import server
from loadtests.faults.errors import FaultError
from loadtests.gamedays.sight import Sight, rules_of, sight_of

TIMEOUT_S = 10.0
START_S = 180.0
END_S = 20.0
SCRAPE_S = 2
"""Seconds between two scrapes, and between two evaluations of the rules."""
POLL_S = 0.2
TARGETS = "audit-targets.json"


def get(url: str) -> str:
    """Return the body of a GET request, whatever its status.

    Raises:
        OSError: the server does not answer.
    """
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answered:
            return str(answered.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


@contextmanager
def running(command: Sequence[str], log: Path, environment: Mapping[str, str], ready: str) -> Iterator[None]:
    """Run a process that serves HTTP; enter the context at its first answer, stop it at the end.

    Args:
        command: command line.
        log: file for its output.
        environment: additional variables.
        ready: URL that answers once the process is ready.

    Raises:
        FaultError: it does not start.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        end = time.monotonic() + START_S
        while not _answers(ready):
            if process.poll() is not None or time.monotonic() > end:
                raise FaultError(f"{command[0]} does not start; see {log}")
            time.sleep(POLL_S)
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        get(url)
    except OSError:
        return False
    return True


class Watchers:
    """Client of sidecar and Prometheus.

    Args:
        sidecar: URL of the sidecar, ending in a slash.
        prometheus: URL of Prometheus, ending in a slash; None if it is not installed.
        targets: Prometheus' target file for the continuous audit.
    """

    def __init__(self, sidecar: str, prometheus: str | None, targets: Path) -> None:
        self.sidecar, self.prometheus = sidecar, prometheus
        self._targets, self._audit = targets, ""

    def add_audit(self, target: str) -> None:
        """Add the metrics of a continuous audit, and let Prometheus scrape them.

        Args:
            target: host:port of the audit's metrics.
        """
        self._audit = f"http://{target}/metrics"
        self._targets.write_text(json.dumps([{"targets": [target]}]))

    def look(self) -> Sight:
        """Query sidecar and Prometheus.

        Raises:
            OSError: the server does not answer.
        """
        return sight_of(
            json.loads(get(f"{self.sidecar}v1/status")),
            json.loads(get(f"{self.sidecar}readyz?verbose")),
            get(f"{self.sidecar}metrics") + (get(self._audit) if self._audit else ""),
            rules_of(self._prometheus_api("alerts")["alerts"]) if self.prometheus else {},
        )

    def _prometheus_api(self, path: str) -> Any:
        return json.loads(get(f"{self.prometheus}api/v1/{path}"))["data"]


@contextmanager
def watchers(directory: Path, environment: Mapping[str, str]) -> Iterator[Watchers]:
    """Run sidecar and Prometheus of one job.

    Args:
        directory: gets logs and Prometheus' data.
        environment: FRAUD_... variables of the job.

    Raises:
        FaultError: one of them does not start.
    """
    port = free_port()
    with (
        serving(port, directory / "sidecar.log", environment) as url,
        _prometheus(directory, port) as prometheus,
    ):
        yield Watchers(url, prometheus, directory / TARGETS)


@contextmanager
def serving(port: int, log: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run `fraud serve` in a child process; gives its URL, ending in a slash.

    Args:
        port: a free port.
        log: file for its output.
        environment: additional variables, among them the job's.

    Raises:
        FaultError: it does not start.
    """
    url = f"http://{HOST}:{port}/"
    with running(
        [sys.executable, "-m", "deploy.cli", "serve", "--port", str(port)], log, environment, f"{url}livez"
    ):
        yield url


@contextmanager
def _prometheus(directory: Path, target: int) -> Iterator[str | None]:
    if not server.is_installed():
        yield None
        return
    config, listen = directory / "prometheus.yml", f"{HOST}:{free_port()}"
    audit = directory / TARGETS
    audit.write_text("[]")
    server.write_config(config, f"{HOST}:{target}", scrape_s=SCRAPE_S, evaluate_s=SCRAPE_S, audit=audit)
    command = server.command(config, f"--storage.tsdb.path={directory / 'prometheus'}", listen)
    with running(command, directory / "prometheus.log", {}, f"http://{listen}/-/ready"):
        yield f"http://{listen}/"

"""Sidecar and, if installed, Prometheus as child processes, queried over HTTP."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from deploy.local.ports import HOST, free_port
from deploy.prometheus import server
from loadtests.faults import http_servers
from loadtests.faults.http_servers import get
from loadtests.gamedays.sight import Sight, rules_of, sight_of

SCRAPE_S = 2
"""Seconds between two scrapes, and between two evaluations of the rules."""
TARGETS = "audit-targets.json"


class Watchers:
    """Client of sidecar, Prometheus and, once added, the continuous audit.

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
        """Query sidecar, Prometheus and continuous audit."""
        return sight_of(
            json.loads(get(f"{self.sidecar}v1/status")),
            json.loads(get(f"{self.sidecar}readyz?verbose")),
            get(f"{self.sidecar}metrics") + (get(self._audit) if self._audit else ""),
            rules_of(json.loads(get(f"{self.prometheus}api/v1/alerts"))["data"]["alerts"])
            if self.prometheus
            else {},
        )


@contextmanager
def watchers(directory: Path, environment: Mapping[str, str]) -> Iterator[Watchers]:
    """Run sidecar and Prometheus of one job.

    Args:
        directory: gets logs and Prometheus' data.
        environment: FRAUD_... variables of the job.
    """
    with (
        http_servers.sidecar(directory / "sidecar.log", environment) as url,
        _prometheus(directory, urlsplit(url).netloc) as prometheus,
    ):
        yield Watchers(url, prometheus, directory / TARGETS)


@contextmanager
def _prometheus(directory: Path, target: str) -> Iterator[str | None]:
    if not server.is_installed():
        yield None
        return
    config, listen = directory / "prometheus.yml", f"{HOST}:{free_port()}"
    audit = directory / TARGETS
    audit.write_text("[]")
    server.write_config(config, target, scrape_s=SCRAPE_S, evaluate_s=SCRAPE_S, audit=audit)
    command = server.command(config, f"--storage.tsdb.path={directory / 'prometheus'}", listen)
    with http_servers.running(command, directory / "prometheus.log", {}, f"http://{listen}/-/ready"):
        yield f"http://{listen}/"

"""A Prometheus of one's own: our configuration and rules with other targets, on a port of this machine."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from deploy.prometheus import CONFIG, RULES
from feature_store.errors import FraudError


class PrometheusError(FraudError):
    """There is no Prometheus to be started."""


def binary() -> str:
    """Path of the program.

    Raises:
        PrometheusError: it is not installed.
    """
    found = shutil.which("prometheus")
    if found is None:
        raise PrometheusError("no program prometheus on the PATH; install it (apt install prometheus)")
    return found


def is_installed() -> bool:
    """Whether there is a program to be started."""
    return shutil.which("prometheus") is not None


def write_config(
    path: Path, target: str, scrape_s: int = 5, evaluate_s: int = 15, audit: Path | None = None
) -> None:
    """Our configuration for one sidecar.

    Args:
        path: of the file.
        target: host:port of the sidecar.
        scrape_s: seconds between two scrapes.
        evaluate_s: seconds between two evaluations of the rules.
        audit: file of targets (JSON) that says where the continuous audit is, read again when it changes.
    """
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    config["global"] = {"scrape_interval": f"{scrape_s}s", "evaluation_interval": f"{evaluate_s}s"}
    config["rule_files"] = [str(RULES / "*.yml")]
    config["scrape_configs"] = [{"job_name": "card-fraud", "static_configs": [{"targets": [target]}]}]
    if audit is not None:
        found = [{"files": [str(audit)]}]
        config["scrape_configs"].append({"job_name": "card-fraud-audit", "file_sd_configs": found})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config))


def command(config: Path, storage: str, listen: str) -> list[str]:
    """The command that serves it.

    Args:
        config: of `write_config`.
        storage: the argument that names the directory of its data.
        listen: host:port.
    """
    return [
        binary(),
        f"--config.file={config}",
        storage,
        f"--web.listen-address={listen}",
        "--storage.tsdb.retention.time=1d",
        "--log.level=warn",
    ]

"""A local Prometheus with the project's configuration and rules, for one sidecar."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from deploy.prometheus import CONFIG, RULES
from feature_store.errors import FraudError


class PrometheusError(FraudError):
    """`--with-prometheus` was given, and Prometheus is not installed."""


def binary() -> str:
    """Return the path of the program.

    Raises:
        PrometheusError: it is not installed.
    """
    path = shutil.which("prometheus")
    if path is None:
        raise PrometheusError("no program prometheus on the PATH; install it (apt install prometheus)")
    return path


def is_installed() -> bool:
    """Return whether Prometheus is installed."""
    return shutil.which("prometheus") is not None


def write_config(
    path: Path, target: str, scrape_s: int = 5, evaluate_s: int = 15, audit: Path | None = None
) -> None:
    """Write the configuration for one sidecar.

    Args:
        target: host:port of the sidecar.
        audit: JSON file with the target of the continuous audit; Prometheus reads it again when it changes.
    """
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    config["global"] = {"scrape_interval": f"{scrape_s}s", "evaluation_interval": f"{evaluate_s}s"}
    config["rule_files"] = [str(RULES / "*.yml")]
    config["scrape_configs"] = [{"job_name": "card-fraud", "static_configs": [{"targets": [target]}]}]
    if audit is not None:
        discovery = [{"files": [str(audit)]}]
        config["scrape_configs"].append({"job_name": "card-fraud-audit", "file_sd_configs": discovery})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config))


def command(config: Path, storage: str, listen: str) -> list[str]:
    """Build the command that starts Prometheus.

    Args:
        storage: the argument that names the data directory.
    """
    return [
        binary(),
        f"--config.file={config}",
        storage,
        f"--web.listen-address={listen}",
        "--storage.tsdb.retention.time=1d",
        "--log.level=warn",
    ]

"""Rules and configuration for Prometheus: YAML files, of which `rules/absence.yml` is made by `absence`."""

from pathlib import Path

HOME = Path(__file__).resolve().parent
RULES = HOME / "rules"
CONFIG = HOME / "prometheus.yml"

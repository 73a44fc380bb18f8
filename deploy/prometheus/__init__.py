"""Rules and configuration for Prometheus: YAML files; the module `absence` generates `rules/absence.yml`."""

from pathlib import Path

HOME = Path(__file__).resolve().parent
RULES = HOME / "rules"
CONFIG = HOME / "prometheus.yml"

"""Dashboards for Grafana, made by code: `python -m deploy.grafana` writes `json/`."""

from pathlib import Path

HOME = Path(__file__).resolve().parent / "json"

"""What an operator sees of the job at one moment, and what a game day says must be seen. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

PENDING, FIRING = "pending", "firing"
FINE = ("OK", "IDLE")
"""Verdicts with which there is nothing to do."""
Labels = frozenset[tuple[str, str]]
Samples = Mapping[str, Mapping[Labels, float]]
"""Metric -> labels -> value."""


@dataclass(frozen=True)
class Sight:
    """One look at the sidecar and at Prometheus."""

    verdict: str
    reasons: Mapping[str, str]
    """Code -> detail of its first reason, the most severe code first."""
    broken: frozenset[str]
    """Checks of `/readyz` that do not hold; those that could not be looked at are left out."""
    is_ready: bool
    samples: Samples
    rules: Mapping[str, str]
    """Alert -> PENDING or FIRING; without Prometheus empty."""

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong by the sidecar's account; rules may look back for longer."""
        return self.verdict in FINE and not self.reasons and self.is_ready


@dataclass(frozen=True)
class Sign:
    """A metric by which the symptom shows."""

    metric: str
    above: float = 0.0
    """What the greatest of the fitting samples exceeds."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """That a sample must have."""
    grows: bool = False
    """Whether that counts by which the sum of the samples has grown since the game day began."""

    def value(self, now: Samples, before: Samples) -> float:
        """The value that is compared; -inf without a sample."""
        found = self._of(now)
        if not found:
            return float("-inf")
        return sum(found) - sum(self._of(before)) if self.grows else max(found)

    def _of(self, samples: Samples) -> list[float]:
        wanted = self.labels.items()
        return [
            value for labels, value in samples.get(self.metric, {}).items() if wanted <= dict(labels).items()
        ]

    def __str__(self) -> str:
        """As in PromQL."""
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        return f"{self.metric}{{{labels}}}" if labels else self.metric


@dataclass(frozen=True)
class Expected:
    """What must be seen, each at some moment while the symptom lasts."""

    codes: tuple[str, ...] = ()
    """Of `/v1/status`."""
    checks: tuple[str, ...] = ()
    """Of `/readyz`."""
    signs: tuple[Sign, ...] = ()
    rules: tuple[str, ...] = ()
    """Alerts that are pending, at least."""
    firing: tuple[str, ...] = ()
    """Alerts that fire, and so must have been pending for as long as they ask for."""


def samples_of(page: str) -> Samples:
    """The samples of a metrics page."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def rules_of(alerts: list[dict[str, Any]]) -> dict[str, str]:
    """Alert -> state, of Prometheus' `/api/v1/alerts`; of several with one name the most severe."""
    found: dict[str, str] = {}
    for alert in alerts:
        name, state = alert["labels"]["alertname"], alert["state"]
        if state in (PENDING, FIRING) and found.get(name) != FIRING:
            found[name] = state
    return found


def sight_of(
    status: Mapping[str, Any], ready: Mapping[str, Any], page: str, rules: Mapping[str, str]
) -> Sight:
    """Put together what was asked for.

    Args:
        status: JSON of `/v1/status`.
        ready: JSON of `/readyz?verbose`.
        page: of `/metrics`.
        rules: see `rules_of`.
    """
    reasons: dict[str, str] = {}
    for reason in status["reasons"]:
        reasons.setdefault(reason["code"], reason["detail"])
    broken = frozenset(check["name"] for check in ready["checks"] if check["ok"] is False)
    return Sight(status["verdict"], reasons, broken, bool(ready["ready"]), samples_of(page), rules)

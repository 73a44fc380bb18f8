"""What an operator sees of the job at one moment, and what a game day expects to be seen. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

PENDING, FIRING = "pending", "firing"
FINE = ("OK", "IDLE")
"""Verdicts that need no action."""
Labels = frozenset[tuple[str, str]]
Samples = Mapping[str, Mapping[Labels, float]]
"""Metric -> labels -> value."""


@dataclass(frozen=True)
class Sight:
    """The state shown by sidecar and Prometheus at one moment."""

    verdict: str
    reasons: Mapping[str, str]
    """Code -> detail of its first reason; the most severe code is first."""
    broken: frozenset[str]
    """Failed checks of `/readyz`; those with an unknown result are left out."""
    is_ready: bool
    samples: Samples
    rules: Mapping[str, str]
    """Name of a Prometheus alert -> PENDING or FIRING; empty without Prometheus."""

    @property
    def is_well(self) -> bool:
        """Whether the sidecar reports nothing wrong; alerting rules look further back and are left out."""
        return self.verdict in FINE and not self.reasons and self.is_ready


@dataclass(frozen=True)
class Sign:
    """A metric that shows the symptom."""

    metric: str
    above: float = 0.0
    """Threshold that the greatest matching sample has to exceed."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that a sample must have."""
    grows: bool = False
    """Whether to compare, instead of the greatest sample, the growth of the sum since the game day began."""

    def value(self, now: Samples, before: Samples) -> float:
        """Return the value to compare; -inf without a sample."""
        values = self._of(now)
        if not values:
            return float("-inf")
        return sum(values) - sum(self._of(before)) if self.grows else max(values)

    def _of(self, samples: Samples) -> list[float]:
        wanted = self.labels.items()
        return [
            value for labels, value in samples.get(self.metric, {}).items() if wanted <= dict(labels).items()
        ]

    def __str__(self) -> str:
        """Return metric and labels in PromQL's syntax, without the threshold."""
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        return f"{self.metric}{{{labels}}}" if labels else self.metric


@dataclass(frozen=True)
class Expected:
    """What must be seen, each item at least once while the symptom lasts."""

    codes: tuple[str, ...] = ()
    """Reason codes of `/v1/status`."""
    checks: tuple[str, ...] = ()
    """Failed checks of `/readyz`."""
    signs: tuple[Sign, ...] = ()
    rules: tuple[str, ...] = ()
    """Prometheus alerts that are at least pending."""
    firing: tuple[str, ...] = ()
    """Prometheus alerts that fire, and so have been pending for their `for` time."""


def samples_of(page: str) -> Samples:
    """Parse the samples of a metrics page."""
    samples: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return samples


def rules_of(alerts: list[dict[str, Any]]) -> dict[str, str]:
    """Return alert name -> most severe state, from the alerts in Prometheus' `/api/v1/alerts`."""
    states: dict[str, str] = {}
    for alert in alerts:
        name, state = alert["labels"]["alertname"], alert["state"]
        if state in (PENDING, FIRING) and states.get(name) != FIRING:
            states[name] = state
    return states


def sight_of(
    status: Mapping[str, Any], ready: Mapping[str, Any], page: str, rules: Mapping[str, str]
) -> Sight:
    """Build a sight from the answers of sidecar and Prometheus.

    Args:
        status: JSON of `/v1/status`.
        ready: JSON of `/readyz?verbose`.
        page: text of `/metrics` of the sidecar, and of the continuous audit if there is one.
        rules: states of Prometheus alerts, see `rules_of`.
    """
    reasons: dict[str, str] = {}
    for reason in status["reasons"]:
        reasons.setdefault(reason["code"], reason["detail"])
    broken = frozenset(check["name"] for check in ready["checks"] if check["ok"] is False)
    return Sight(status["verdict"], reasons, broken, bool(ready["ready"]), samples_of(page), rules)

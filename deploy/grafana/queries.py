"""Expressions that several panels use.

Several sidecars export the same totals of one job: the greatest is taken, and they are never added up.
"""

from deploy.grafana.panels import Query

JOB = '{job="$job"}'


def rate(metric: str, by: str = "", where: str = "") -> str:
    """Growth of a counter a second, by labels."""
    selector = f'{{job="$job"{"," + where if where else ""}}}'
    grouping = f"max by ({by})" if by else "max"
    return f"{grouping} (rate({metric}{selector}[$__rate_interval]))"


def gauge(metric: str, by: str = "", where: str = "") -> str:
    """A gauge, by labels."""
    selector = f'{{job="$job"{"," + where if where else ""}}}'
    grouping = f"max by ({by})" if by else "max"
    return f"{grouping} ({metric}{selector})"


def share(part: str, whole: str) -> str:
    """One counter's growth of another's."""
    return f"{rate(part)} / {rate(whole)}"


def ahead(metric: str) -> str:
    """Seconds by which a point in time is ahead of Prometheus, or behind it (negative)."""
    return f"max({metric}{JOB} - timestamp({metric}{JOB}))"


def quantile(metric: str, at: str, by: str = "") -> str:
    """A quantile of a histogram, by labels."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({at}, {rate(f'{metric}_bucket', labels)})"


def quantiles(metric: str, *shares: str) -> tuple[Query, ...]:
    """Quantiles of a histogram, each a query."""
    return tuple(Query(quantile(metric, one), f"p{float(one) * 100:g}") for one in shares)

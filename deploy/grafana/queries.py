"""PromQL expressions that several panels use.

Several sidecars may export the same totals of one job, so expressions take the maximum and never add them up.
"""

from deploy.grafana.panels import Query

JOB = '{job="$job"}'


def filled(expression: str, job: str) -> str:
    """Replace Grafana's variables in an expression, for a Prometheus that is asked directly.

    Args:
        job: name of the scrape job.
    """
    return expression.replace("$__rate_interval", "1m").replace("$job", job)


def rate(metric: str, by: str = "", where: str = "") -> str:
    """Build the rate per second of a counter, for each value of the labels `by`; `where`: label matchers."""
    selector = f'{{job="$job"{"," + where if where else ""}}}'
    grouping = f"max by ({by})" if by else "max"
    return f"{grouping} (rate({metric}{selector}[$__rate_interval]))"


def gauge(metric: str, by: str = "", where: str = "") -> str:
    """Build the value of a gauge, for each value of the labels `by`; `where`: label matchers."""
    selector = f'{{job="$job"{"," + where if where else ""}}}'
    grouping = f"max by ({by})" if by else "max"
    return f"{grouping} ({metric}{selector})"


def share(part: str, whole: str) -> str:
    """Build the ratio of one counter's rate to another's."""
    return f"{rate(part)} / {rate(whole)}"


def ahead(metric: str) -> str:
    """Build the seconds by which a timestamp metric is ahead of Prometheus's clock; negative if behind."""
    return f"max({metric}{JOB} - timestamp({metric}{JOB}))"


def quantile(metric: str, at: str, by: str = "") -> str:
    """Build the quantile `at` (0 to 1) of a histogram, for each value of the labels `by`."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({at}, {rate(f'{metric}_bucket', labels)})"


def quantiles(metric: str, *levels: str) -> tuple[Query, ...]:
    """Build one query for each quantile of a histogram."""
    return tuple(Query(quantile(metric, level), f"p{float(level) * 100:g}") for level in levels)

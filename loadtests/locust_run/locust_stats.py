"""Locust's own statistics, without rounding to two digits, with latencies from intended sending times."""

from collections.abc import Sequence
from typing import Any

KIND, NAME = "KAFKA", "transaction to alert"


def keep_digits() -> None:
    """Make locust keep response times to a tenth of a millisecond below 1 s, to a millisecond above.

    Locust rounds 147 ms to 150 and 1,470 to 1,500, which is too coarse for tail latencies.
    """
    from locust import stats  # the import replaces Python's sockets and threads by gevent's

    locust: Any = stats  # `bucket_response_time` is typed as returning int, but any number works
    locust.bucket_response_time = bucket


def bucket(response_time: float) -> float:
    """Return the key under which locust counts a response time, ms."""
    return round(response_time, 1 if response_time < 1_000 else 0)


def feed(events: Any, alerts: Sequence[tuple[float, int]]) -> None:
    """Report latencies to locust as requests.

    Args:
        alerts: (latency in ms, bytes) of each alert.
    """
    for latency_ms, size in alerts:
        events.request.fire(
            request_type=KIND,
            name=NAME,
            response_time=latency_ms,
            response_length=size,
            exception=None,
            context={},
        )

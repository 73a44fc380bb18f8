"""Counts and latencies of a demo's alerts, as they are received."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from deploy.demo.merchant_watch import MerchantWatch
from loadtests.rig import histograms
from loadtests.rig.watch import AlertWatch, ReceivedAlert, latency_us
from streaming_job.log.clients import Address

WARM_UP_S = 15.0
"""Time after the start of the load until latencies count: meanwhile the JVM and numba compile."""
SHOWN = 12
"""Number of latest alerts to show."""
RECENT = 200
"""Number of latest latencies for the running percentiles."""


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of the latency (loadtests/rig/watch.py), ms."""

    p50: float
    p99: float
    alerts: int
    left_out_s: float = 0.0
    """Duration of the warm-up, whose alerts are left out; 0 if all alerts count."""

    @staticmethod
    def of(latencies_us: Sequence[int] | deque[int], left_out_s: float = 0.0) -> "Percentiles | None":
        """Compute percentiles of latencies in microseconds; None without latencies."""
        values = histograms.percentiles_ms(histograms.of(latencies_us))
        return Percentiles(values["p50"], values["p99"], len(latencies_us), left_out_s) if values else None


class DemoAlerts(AlertWatch):
    """The alerts of fraud-alerts from its beginning on."""

    def __init__(self, bootstrap_servers: str, topic: str, merchants: MerchantWatch | None = None) -> None:
        super().__init__(Address(bootstrap_servers), topic, from_beginning=True)
        self._merchants = merchants
        self._begun_ms = float("inf")
        self.latest: deque[dict[str, Any]] = deque(maxlen=SHOWN)
        """Latest alerts, newest last."""
        self.count = 0
        """Number of alerts since the beginning of the topic."""
        self.rules: Counter[str] = Counter()
        """Alerts by rule."""
        self.declined_after_change = 0
        """Alerts of cards that were blocked in Postgres after the profiles had been loaded."""
        self._warm_us: list[int] = []
        self._all_us: list[int] = []
        self.recent_us: deque[int] = deque(maxlen=RECENT)
        """Latencies of the latest alerts, warm-up included, microseconds."""

    def measure_from(self, begun_at: float) -> None:
        """Measure latencies of transactions that arrive from `begun_at` on, seconds since 1970-01-01 UTC.

        Earlier ones, which came before a killed start or are of a replay, do not count.
        """
        self._begun_ms = begun_at * 1_000

    def update(self) -> None:
        """Count the alerts received since the last call."""
        self.check()
        self._count(self.take())

    def count_rest(self) -> None:
        """Count the remaining alerts and end the thread."""
        self._count(self.finish())

    def latency(self) -> Percentiles | None:
        """Compute percentiles of the alerts after the warm-up, or else of all alerts; None without alerts."""
        return Percentiles.of(self._warm_us, WARM_UP_S) or Percentiles.of(self._all_us)

    def _count(self, received: Sequence[ReceivedAlert]) -> None:
        for value, at_ns in received:
            alert = orjson.loads(value)
            self.count += 1
            self.rules.update(alert["rules"])
            profile = alert["profile"]
            if profile is not None and profile["status"] == "blocked" and profile["arrival_time"] > 0:
                self.declined_after_change += 1
            self.latest.append(alert)
            if self._merchants is not None:
                self._merchants.see_alert(alert)
            since_ms = alert["arrival_time"] - self._begun_ms
            if since_ms >= 0:
                latency = latency_us(alert["arrival_time"], at_ns)
                self.recent_us.append(latency)
                self._all_us.append(latency)
                if since_ms >= 1_000 * WARM_UP_S:
                    self._warm_us.append(latency)

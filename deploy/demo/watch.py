"""A consumer of fraud-alerts, as a bank would run one, which measures the latency of each alert."""

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from deploy.demo.merchant_watch import MerchantWatch
from streaming_job.log import clients
from streaming_job.log.clients import Address

WARM_UP_S = 15.0
"""Time after the start of the load until latencies count: meanwhile the JVM and numba compile."""
SHOWN = 12
"""Number of latest alerts to show."""
RECENT = 200
"""Number of latest latencies for the running percentiles."""
POLL_S = 0.1


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of the latency, ms: from a transaction's Kafka timestamp to the receipt of its alert."""

    p50: float
    p99: float
    alerts: int
    """Number of measured alerts."""
    left_out_s: float = 0.0
    """Duration of the warm-up, whose alerts are left out; 0 if all alerts count."""

    @staticmethod
    def of(latencies: Sequence[float] | deque[float], left_out_s: float = 0.0) -> "Percentiles | None":
        """Compute percentiles; None without latencies."""
        if not latencies:
            return None
        p50, p99 = np.percentile(list(latencies), [50, 99]).tolist()
        return Percentiles(p50, p99, len(latencies), left_out_s)


class AlertWatch:
    """Background thread that consumes fraud-alerts from its beginning.

    Args:
        bootstrap_servers: address of the broker.
        topic: topic of the alerts.
        merchants: another observer of the alerts, if any.
    """

    def __init__(self, bootstrap_servers: str, topic: str, merchants: MerchantWatch | None = None) -> None:
        self._topic, self._merchants = topic, merchants
        self._consumer = clients.reader(Address(bootstrap_servers), "fraud-demo")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alert-watch", daemon=True)
        self._begun_ms = float("inf")
        self.latest: deque[dict[str, Any]] = deque(maxlen=SHOWN)
        """Latest alerts, newest last."""
        self.count = 0
        """Number of alerts since the beginning of the topic."""
        self.rules: Counter[str] = Counter()
        """Alerts by rule."""
        self.declined_after_change = 0
        """Alerts of cards that were blocked in Postgres after the profiles had been loaded."""
        self._latencies: list[tuple[float, float]] = []  # (arrival in s since the load began, latency in ms)
        self.recent: deque[float] = deque(maxlen=RECENT)
        """Latencies of the latest alerts, warm-up included, ms."""
        self.fault: str | None = None
        """Error message, if the thread failed."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def measure_from(self, begun_at: float) -> None:
        """Measure latencies of transactions that arrive from `begun_at` on, seconds since 1970-01-01 UTC."""
        self._begun_ms = begun_at * 1_000

    def latency(self) -> Percentiles | None:
        """Compute percentiles of the alerts after the warm-up, or else of all alerts; None without alerts."""
        warm = [latency for since, latency in self._latencies if since >= WARM_UP_S]
        return Percentiles.of(warm, WARM_UP_S) or Percentiles.of([latency for _, latency in self._latencies])

    def stop(self) -> None:
        """End the thread and close the consumer."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            partitions = self._consumer.list_topics(self._topic, 10.0).topics[self._topic].partitions
            self._consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in partitions])
            while not self._stop.is_set():
                # poll returns with the first record; consume would wait for more
                message = self._consumer.poll(POLL_S)
                now_ms = time.time() * 1_000
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    if error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise RuntimeError(error.str())
                    continue
                self._count_alert(orjson.loads(message.value() or b"{}"), now_ms)
        except Exception as error:
            self.fault = f"the alerts cannot be read: {error}"
        finally:
            self._consumer.close()

    def _count_alert(self, alert: dict[str, Any], now_ms: float) -> None:
        self.count += 1
        self.rules.update(alert["rules"])
        profile = alert["profile"]
        if profile is not None and profile["status"] == "blocked" and profile["arrival_time"] > 0:
            self.declined_after_change += 1
        self.latest.append(alert)
        if self._merchants is not None:
            self._merchants.see_alert(alert)
        since_ms = alert["arrival_time"] - self._begun_ms
        if since_ms >= 0:  # arrivals before the load, of a killed start or a replay, do not count
            latency = now_ms - alert["arrival_time"]
            self.recent.append(latency)
            self._latencies.append((since_ms / 1_000, latency))

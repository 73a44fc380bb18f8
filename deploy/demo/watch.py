"""What a bank's own consumer of fraud-alerts sees: each alert as it becomes visible, and how late that is."""

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

WARM_UP_S = 15.0
"""Latencies count from so long after the load began: the JVM and the kernels compile until then."""
SHOWN = 12
"""Alerts that are kept for show."""
RECENT = 200
"""Latest latencies of which the running percentiles are made."""
POLL_S = 0.1


@dataclass(frozen=True)
class Percentiles:
    """Event's Kafka timestamp to receipt by a read_committed consumer, ms."""

    p50: float
    p99: float
    alerts: int
    """How many were measured."""

    @staticmethod
    def of(latencies: Sequence[float] | deque[float]) -> "Percentiles | None":
        """None without latencies."""
        if not latencies:
            return None
        p50, p99 = np.percentile(list(latencies), [50, 99]).tolist()
        return Percentiles(p50, p99, len(latencies))


class AlertWatch:
    """Consumes fraud-alerts from its beginning in a thread of its own.

    Args:
        bootstrap_servers: the broker.
        topic: the alerts.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "fraud-demo",  # never joined
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alert-watch", daemon=True)
        self._begun_ms = float("inf")
        self.latest: deque[dict[str, Any]] = deque(maxlen=SHOWN)
        """Newest last."""
        self.count = 0
        """Alerts seen since the beginning of the topic."""
        self.rules: Counter[str] = Counter()
        """Alerts by rule."""
        self.declined_after_change = 0
        """Alerts of cards that were blocked by a change, not by the first load."""
        self._latencies: list[tuple[float, float]] = []  # seconds since the load began, ms
        self.recent: deque[float] = deque(maxlen=RECENT)
        """Of the latest alerts, warm-up included, ms."""
        self.fault: str | None = None
        """Why it gave up, if it did."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def measure_from(self, begun_at: float) -> None:
        """Latencies count for transactions that arrive from now on, in seconds since 1970-01-01 UTC."""
        self._begun_ms = begun_at * 1_000

    def latency(self) -> Percentiles | None:
        """Over the whole load after the warm-up, or all of it where it was shorter; None without alerts."""
        warm = [latency for since, latency in self._latencies if since >= WARM_UP_S]
        return Percentiles.of(warm or [latency for _, latency in self._latencies])

    def stop(self) -> None:
        """End the thread and close the consumer."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            partitions = self._consumer.list_topics(self._topic, 10.0).topics[self._topic].partitions
            self._consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in partitions])
            while not self._stop.is_set():
                # poll returns with the first record, consume would wait for company
                message = self._consumer.poll(POLL_S)
                now_ms = time.time() * 1_000
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    if error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise RuntimeError(error.str())
                    continue
                self._see(orjson.loads(message.value() or b"{}"), now_ms)
        except Exception as error:
            self.fault = f"the alerts cannot be read: {error}"
        finally:
            self._consumer.close()

    def _see(self, alert: dict[str, Any], now_ms: float) -> None:
        self.count += 1
        self.rules.update(alert["rules"])
        profile = alert["profile"]
        if profile is not None and profile["status"] == "blocked" and profile["arrival_time"] > 0:
            self.declined_after_change += 1
        self.latest.append(alert)
        since_ms = alert["arrival_time"] - self._begun_ms
        if since_ms >= 0:  # not what a killed run left behind
            latency = now_ms - alert["arrival_time"]
            self.recent.append(latency)
            self._latencies.append((since_ms / 1_000, latency))

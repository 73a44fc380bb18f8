"""A page of the sidecar's metrics without a job: its counters grow with time."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from feature_store.catalogue import HOUR_MS
from harness.progress_records import progress
from models.guards.counts import Labelled
from service.health.codes import Verdict
from service.health.diagnosis import Diagnosis, Reason
from service.health.job_watch import View
from service.health.lag import Lag, PartitionLag
from service.health.monitor import Monitor
from service.health.readiness import NAMES, Check
from service.metrics.collector import of_view
from service.metrics.http import HttpMetrics
from service.metrics.of_quality import of_quality
from service.metrics.of_rollouts import of_guards, of_labelled
from service.quality.counts import Quality
from service.settings import ServiceSettings
from streaming_job.progress.outcome import LATENCY_MS
from streaming_job.progress.totals import Totals

SETTINGS = ServiceSettings(bootstrap_servers="127.0.0.1:1")
COMMITS_PER_S = 10.0
ALERTS_OF = (("rule", "score"), ("model", "card-fraud 1"), ("rollout", "r1"))


class LivePage(Collector):
    """Collector of the metrics that a sidecar would export for a job with steady commits."""

    def __init__(self) -> None:
        self._began = time.time()
        self._monitor = Monitor(SETTINGS)

    def collect(self) -> Iterable[Metric]:
        """Yield all metric families."""
        now = time.time()
        yield from of_view(self._view(now, 2 + int((now - self._began) * COMMITS_PER_S)), SETTINGS)
        yield from of_guards([("r1", "b", "alert_rate", "pass")])
        yield from of_labelled([("r1", "b", "challenger", Labelled(3, 1))])
        yield from of_quality([Quality(by, name, 3, 1, 40, 20_000) for by, name in ALERTS_OF])

    def _view(self, now: float, commits: int) -> View:
        groups = {0: _record(commits, int(now * 1000))}
        totals = Totals.from_json(groups[0]["totals"])
        waiting = PartitionLag(
            "transactions", 0, 0, commits * 100 + 4, commits * 100, waiting_since_ms=int(now * 1000)
        )
        lag = Lag(now, (waiting,), feed_ms={"heartbeat": int(now * 1000), "change": int(now * 1000)})
        self._monitor.see(lag, groups, totals)
        checks = tuple(Check(name, code) for name, code in NAMES.items())
        diagnosis = Diagnosis(Verdict.WARN, (Reason("feed_silent", "...", now),))
        return View(now, checks, groups, lag, self._monitor.assessment, diagnosis, totals, True, True, 0)


def _record(commits: int, now_ms: int) -> dict[str, Any]:
    event = {"rollout_id": "r1", "seq": 2, "type": "shadow_started", "offset": 7, "held_from": {"0": 55}}
    record = progress(commits, written_at=now_ms, started_at=now_ms - 100)
    record["applied"] = [{**event, "seq": 1, "type": "proposed", "offset": 6}, event]
    for part in record["partitions"]:
        if part["topic"] == "transactions":
            times = dict.fromkeys(("max_event_time", "event_time", "watermark", "active_at"), now_ms)
            part.update(times)
    fast = [0] * (len(LATENCY_MS) + 1)
    fast[2] = commits * 100
    bins = [[commits * 100, commits * 200, 0], [commits * 300, 0, 0]]
    record["feature_counts"] = {
        "model": record["model"],
        "sampled": 8,
        "hour": now_ms // HOUR_MS,
        "features": ["amount", "has_profile"],
        "trained": [[1000, 1000, 0], [1990, 10, 0]],
        "counts": bins,
        "recent": bins,
    }
    record["totals"]["latency_ms"] = {"le": list(LATENCY_MS), "counts": fast, "sum": commits * 1500.0}
    record["totals"]["trials"] = {"r1": {"seq": 2, "challengers": {"b": _counts(commits)}}}
    return record


def _counts(commits: int) -> dict[str, Any]:
    units = {"both": 2 * commits, "only_champion": commits, "only_challenger": commits}
    scores = {"le": [0.5, 1.0], "counts": [95 * commits, 5 * commits, 0], "sum": 4.0 * commits}
    flat = {
        "transactions": 100,
        "decided": 0,
        "failures": 0,
        "rows": 110,
        "time_ms": 30,
        "champion_time_ms": 20,
    }
    return {
        **{name: many * commits for name, many in flat.items()},
        **units,
        "card_hours": units,
        "cards": units,
        "scores": scores,
        "champion_scores": scores,
    }


@contextmanager
def served(port: int) -> Iterator[None]:
    """Serve the page at http://127.0.0.1:port/metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LivePage())
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)

    async def page(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            text = [(b"content-type", b"text/plain; version=0.0.4")]
            await send({"type": "http.response.start", "status": 200, "headers": text})
            await send({"type": "http.response.body", "body": generate_latest(registry)})

    config = uvicorn.Config(
        HttpMetrics(page, registry), host="127.0.0.1", port=port, log_level="error", lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(10)

"""Sidecar benchmark: response times with many clients, and the clients' effect on the job's latency."""

import http.client
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from urllib.parse import urlsplit

import numpy as np

from loadtests.bench.measure import Figure
from loadtests.bench.rig import BenchError, Rig
from loadtests.faults import http_servers
from loadtests.rig import histograms
from loadtests.rig.report import Say
from loadtests.rig.watch import arrival_latencies_us
from service import priority

PATHS = ("/metrics", "/v1/status")
ANSWER_S = 10.0


@dataclass(frozen=True)
class RequestLoad:
    """Load of requests on the sidecar, and of transactions on the job."""

    clients: int
    per_minute: int
    """Requests of all clients together."""
    rate: float
    """Transactions per second."""
    warm_up_s: float
    """Time before the measurement, seconds."""
    for_s: float
    """Length of each stretch, seconds; stretches with and without requests alternate."""
    turns: int
    """Number of stretches of each kind."""


class Client(threading.Thread):
    """A client with fixed sending times and one connection; a slow response delays its later requests."""

    def __init__(self, url: str, first_at: float, every_s: float, until: float) -> None:
        """Start nothing yet; times are seconds of `time.monotonic`."""
        super().__init__(daemon=True)
        self._address, self._times = urlsplit(url).netloc, np.arange(first_at, until, every_s)
        self.latencies_ms: dict[str, list[float]] = {path: [] for path in PATHS}
        """Times from the intended sending to the end of the response, by path, ms."""
        self.fault: str | None = None

    def run(self) -> None:
        """Send the requests, up to the first that fails."""
        connection = http.client.HTTPConnection(self._address, timeout=ANSWER_S)
        try:
            for number, intended in enumerate(self._times.tolist()):
                time.sleep(max(0.0, intended - time.monotonic()))
                path = PATHS[number % len(PATHS)]
                connection.request("GET", path)
                response = connection.getresponse()
                response.read()
                self.latencies_ms[path].append(1000 * (time.monotonic() - intended))
                if response.status != 200:
                    self.fault = f"{path} answered {response.status}"
                    return
        except (OSError, http.client.HTTPException) as fault:
            self.fault = str(fault)
        finally:
            connection.close()


def measure(rig: Rig, requests: RequestLoad, say: Say) -> Iterator[Figure]:
    """Run the job at a rate, with requests to the sidecar in every other stretch."""
    rig.start_warm_job(say)
    watch = rig.installed.watch_alerts()
    latencies_ms: dict[str, list[float]] = {path: [] for path in PATHS}
    stretches: list[tuple[bool, float, float]] = []
    settings, log = rig.installed.settings, rig.options.data_dir / "logs" / "sidecar.log"
    with (
        # the clients run in another process, because many threads in this one would delay the reader, which
        # records when it receives alerts; and at low priority, because a bank's clients run on other machines
        # and so take no CPU time from the job
        ProcessPoolExecutor(1, get_context("spawn"), priority.lower) as clients,
        http_servers.sidecar(log, settings.variables()) as url,
        rig.feeding(requests.rate, requests.warm_up_s + 2 * requests.turns * requests.for_s + 60),
    ):
        say("warming up")
        clients.submit(int).result()  # starts the process before a stretch begins
        time.sleep(requests.warm_up_s)
        for turn in range(2 * requests.turns):
            with_requests = turn % 2 == 1
            say(
                f"stretch {turn + 1} of {2 * requests.turns}, "
                f"{'with' if with_requests else 'without'} requests"
            )
            begin = time.time()
            if with_requests:
                for path, times in clients.submit(_send_requests, url, requests).result().items():
                    latencies_ms[path] += times
            else:
                time.sleep(requests.for_s)
            stretches.append((with_requests, 1000 * begin, 1000 * time.time()))
            rig.check()
    rig.catch_up(say)
    alerts = watch.finish()
    rig.stop_job()
    for path, times in latencies_ms.items():
        for percentile in (50, 99):
            detail = (
                f"{requests.clients} clients, {requests.per_minute:,} requests a minute; "
                f"{len(times):,} responses"
            )
            yield Figure(f"{path} p{percentile}", float(np.percentile(times, percentile)), "ms", detail)
    for with_requests in (False, True):
        latency = histograms.empty()
        for had_requests, *times in stretches:
            if had_requests is with_requests:
                histograms.record(latency, arrival_latencies_us(alerts, *times))
        count = latency.get_total_count()
        kind = "with" if with_requests else "without"
        if not count:
            raise BenchError(f"no alert was received {kind} requests; give a higher --rate or a longer --for")
        for percentile in (50, 99):
            name = f"job's p{percentile} {kind} requests"
            yield Figure(
                name, histograms.percentile_ms(latency, percentile) or 0.0, "ms", f"{count:,} alerts"
            )


def _send_requests(url: str, requests: RequestLoad) -> dict[str, list[float]]:
    """Send one stretch's requests; returns latencies in ms by path."""
    every_s = 60.0 * requests.clients / requests.per_minute
    begin = time.monotonic()
    clients = [
        Client(url, begin + every_s * number / requests.clients, every_s, begin + requests.for_s)
        for number in range(requests.clients)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
        if client.fault is not None:
            raise BenchError(f"a request to the sidecar failed: {client.fault}")
    return {path: [ms for client in clients for ms in client.latencies_ms[path]] for path in PATHS}

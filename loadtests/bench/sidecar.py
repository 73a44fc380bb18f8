"""How long the sidecar takes to answer many clients at once, and what that costs the job's latency."""

import http.client
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

from deploy.demo.environment import free_port
from loadtests.bench.alert_reader import AlertReader
from loadtests.bench.measure import Figure
from loadtests.bench.rig import BenchError, Rig, Say
from loadtests.gamedays.watchers import serving

PATHS = ("/metrics", "/v1/status")
ANSWER_S = 10.0


@dataclass(frozen=True)
class Asked:
    """What is asked of the sidecar while the job works."""

    clients: int
    per_minute: int
    """Requests of all clients together."""
    rate: float
    """Transactions per second."""
    warm_up_s: float
    """Before what is measured."""
    for_s: float
    """Length of each stretch: with requests and without, in turns."""
    turns: int
    """Stretches of either kind."""


class Client(threading.Thread):
    """One client: it sends at intended times, whatever the answers before took, over one connection."""

    def __init__(self, url: str, first_at: float, every_s: float, until: float) -> None:
        """Start nothing yet; times are seconds of `time.monotonic`."""
        super().__init__(daemon=True)
        self._address, self._times = urlsplit(url).netloc, np.arange(first_at, until, every_s)
        self.took: dict[str, list[float]] = {path: [] for path in PATHS}
        """By path: intended time to the end of the answer, ms."""
        self.fault: str | None = None

    def run(self) -> None:
        """Send all of it."""
        connection = http.client.HTTPConnection(self._address, timeout=ANSWER_S)
        try:
            for number, intended in enumerate(self._times.tolist()):
                time.sleep(max(0.0, intended - time.monotonic()))
                path = PATHS[number % len(PATHS)]
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()
                self.took[path].append(1000 * (time.monotonic() - intended))
                if answer.status != 200:
                    self.fault = f"{path} answered {answer.status}"
                    return
        except (OSError, http.client.HTTPException) as fault:
            self.fault = str(fault)
        finally:
            connection.close()


def measure(rig: Rig, asked: Asked, say: Say) -> Iterator[Figure]:
    """Let the job work at a rate, and ask the sidecar in every other stretch.

    Raises:
        FraudError: the job ended, or the sidecar did not answer.
    """
    rig.start_job()
    rig.catch_up(say)
    reader = AlertReader(rig.installed.stack.bootstrap_servers, rig.installed.topics.fraud_alerts)
    reader.start()
    took: dict[str, list[float]] = {path: [] for path in PATHS}
    stretches: list[tuple[bool, float, float]] = []
    settings, log = rig.installed.settings, rig.plan.data_dir / "logs" / "sidecar.log"
    with (
        serving(free_port(), log, settings.variables()) as url,
        rig.feeding(asked.rate, asked.warm_up_s + 2 * asked.turns * asked.for_s + 60),
    ):
        say("warming up")
        time.sleep(asked.warm_up_s)
        for turn in range(2 * asked.turns):
            is_asked = turn % 2 == 1
            say(f"stretch {turn + 1} of {2 * asked.turns}, {'with' if is_asked else 'without'} requests")
            begin = time.time()
            if is_asked:
                _ask(url, asked, took)
            else:
                time.sleep(asked.for_s)
            stretches.append((is_asked, 1000 * begin, 1000 * time.time()))
            rig.check()
    rig.catch_up(say)
    reader.stop()
    rig.stop_job()
    for path, times in took.items():
        for percentile in (50, 99):
            detail = (
                f"{asked.clients} clients, {asked.per_minute:,} requests a minute; {len(times):,} answers"
            )
            yield Figure(f"{path} p{percentile}", float(np.percentile(times, percentile)), "ms", (), detail)
    for is_asked in (False, True):
        found = np.concatenate([reader.latencies(*times) for kind, *times in stretches if kind is is_asked])
        if not found.size:
            raise BenchError("no alert came in a stretch; give a higher --rate or a longer --for")
        for percentile in (50, 99):
            name = f"job's p{percentile} {'with' if is_asked else 'without'} requests"
            yield Figure(name, float(np.percentile(found, percentile)), "ms", (), f"{found.size:,} alerts")


def _ask(url: str, asked: Asked, took: dict[str, list[float]]) -> None:
    every_s = 60.0 * asked.clients / asked.per_minute
    begin = time.monotonic()
    clients = [
        Client(url, begin + every_s * number / asked.clients, every_s, begin + asked.for_s)
        for number in range(asked.clients)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
        if client.fault is not None:
            raise BenchError(f"the sidecar did not answer: {client.fault}")
        for path, times in client.took.items():
            took[path] += times

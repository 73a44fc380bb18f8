"""What a load test runs against: a stack and a job of its own, or any cluster with the job's settings."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtests.bench import rig as bench
from loadtests.locust_run.errors import LoadTestError
from streaming_job import environment
from streaming_job.settings import JobSettings

OWN = "loadtest"
"""Names of topics that may be filled without further words begin with it."""
SIDECAR_S = 60.0
SHOWN = "sidecar: "
Say = Callable[[str], None]


@dataclass(frozen=True)
class Target:
    """A job that runs."""

    settings: JobSettings
    own_topics: bool
    """Nobody else writes to them."""
    sidecar: str = ""
    """Its URL; empty: there is none."""


@contextmanager
def embedded(plan: bench.Plan, say: Say, *, sidecar: bool = True) -> Iterator[Target]:
    """Servers, model, profiles, job and sidecar, all stopped at the end.

    Args:
        plan: how much of it; its directory is emptied.
        say: is told what is being done.
        sidecar: whether to start one.

    Raises:
        FraudError: something does not come up.
    """
    with bench.rig(plan, say) as made:
        say("starting the job")
        made.start_job()
        made.catch_up(say)
        settings = made.installed.settings
        if not sidecar:
            yield Target(settings, own_topics=True)
            return
        with _sidecar(settings, plan.data_dir) as url:
            yield Target(settings, own_topics=True, sidecar=url)


def cluster(*, allow_production: bool, sidecar: str = "") -> Target:
    """The job that the FRAUD_... variables describe; it must run already.

    Args:
        allow_production: fill topics whose names do not begin with `loadtest`.
        sidecar: URL of its sidecar.

    Raises:
        FraudError: settings are missing, or it is not said that these topics may be filled.
    """
    settings = environment.settings(JobSettings)
    topic = settings.topics.transactions
    own = topic.startswith(OWN)
    if not own and not allow_production:
        raise LoadTestError(
            f"{topic} may be the real topic: simulated transactions would be decided as real ones; give "
            f"FRAUD_TOPICS__TRANSACTIONS={OWN}-... and a job of its own, or say --allow-production"
        )
    return Target(settings, own_topics=False, sidecar=sidecar)


@contextmanager
def _sidecar(settings: JobSettings, directory: Path) -> Iterator[str]:
    log = directory / "logs" / "sidecar.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "deploy.cli", "serve", "--port", "0"],
            env={**os.environ, **settings.variables(), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        end = time.monotonic() + SIDECAR_S
        while not (url := _url(log)):
            if process.poll() is not None or time.monotonic() > end:
                raise LoadTestError(f"the sidecar does not start; see {log}")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _url(log: Path) -> str:
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith(SHOWN):
            return line.removeprefix(SHOWN).strip().rstrip("/")
    return ""

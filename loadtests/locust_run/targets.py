"""Targets of a load test: a stack and job of its own, or the cluster that the job's settings name."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from loadtests.bench import rig as bench
from loadtests.faults import http_servers
from loadtests.locust_run.errors import LoadTestError
from loadtests.rig.report import Say
from streaming_job import environment
from streaming_job.settings import JobSettings

OWN = "loadtest"
"""Prefix of topics that may be written to without --allow-production."""


@dataclass(frozen=True)
class Target:
    """A running job."""

    settings: JobSettings
    own_topics: bool
    """Whether no other producer writes to the topics."""
    sidecar: str = ""
    """URL of the sidecar; empty: no sidecar."""
    sent_before: int = 0
    """Transactions that were sent before any load test, if no other producer writes to the topics."""
    alerts_before: int = 0
    """Alerts of these transactions."""


@contextmanager
def embedded(options: bench.RigOptions, say: Say, *, sidecar: bool = True) -> Iterator[Target]:
    """Run the servers, with model and profiles, the job and the sidecar, in a directory that is emptied."""
    with bench.rig(options, say) as system:
        say("starting the job")
        system.start_warm_job(say)
        installed, settings = system.installed, system.installed.settings
        alerts = len(installed.read(installed.topics.fraud_alerts))
        target = Target(settings, own_topics=True, sent_before=installed.sent, alerts_before=alerts)
        if not sidecar:
            yield target
            return
        with http_servers.sidecar(options.data_dir / "logs" / "sidecar.log", settings.variables()) as url:
            yield replace(target, sidecar=url.rstrip("/"))


def cluster(*, allow_production: bool, sidecar: str = "") -> Target:
    """Return, as a target, the job that the FRAUD_... variables describe; it must already run.

    Args:
        allow_production: whether to write to topics whose names do not begin with `loadtest`.
    """
    settings = environment.settings(JobSettings)
    topic = settings.topics.transactions
    own = topic.startswith(OWN)
    if not own and not allow_production:
        raise LoadTestError(
            f"{topic} may be a production topic, where simulated transactions are decided as real ones; "
            f"set FRAUD_TOPICS__TRANSACTIONS={OWN}-... and run a separate job, or give --allow-production"
        )
    return Target(settings, own_topics=False, sidecar=sidecar)

"""Locust users: one producer of transactions per worker, and readers of the job's sidecar."""

import os
from typing import Any

import gevent
from locust import HttpUser, LoadTestShape, User, constant_pacing, task

from feature_store.errors import FraudError
from loadtests.locust_run import locust_stats
from loadtests.locust_run.wiring import wiring

PUMP_S = 0.1
TOKEN = "FRAUD_SIDECAR_TOKEN"
"""Environment variable with the token for a sidecar that requires one; a command line would show the token to
other users of the machine."""


class TransactionUser(User):
    """The producer of a worker's share of the transactions.

    A thread (`sender`) keeps the schedule, which greenlets that wait for responses could not keep. This user
    only passes the measured latencies to locust's statistics.
    """

    fixed_count = 1

    @task
    def produce(self) -> None:
        """Report new latencies, ten times a second."""
        lane = wiring.lane
        if lane is not None:
            locust_stats.feed(self.environment.events, lane.take_alerts())
        gevent.sleep(PUMP_S)


class SidecarUser(HttpUser):
    """A reader of the sidecar, one request a second: half for metrics, the others for readiness or status."""

    wait_time = constant_pacing(1.0)

    def __init__(self, environment: Any) -> None:
        self.host = environment.parsed_options.tx_sidecar
        super().__init__(environment)  # type: ignore[no-untyped-call]
        if token := os.environ.get(TOKEN):
            self.client.headers["Authorization"] = f"Bearer {token}"

    @task(2)
    def metrics(self) -> None:
        """Request the metrics, as Prometheus does."""
        self.client.get("/metrics")

    @task
    def ready(self) -> None:
        """Request the readiness, as an orchestrator does; 503 counts as a failed request."""
        self.client.get("/readyz")

    @task
    def status(self) -> None:
        """Request the status, as the status page does."""
        self.client.get("/v1/status")


class WholeRun(LoadTestShape):
    """Load shape of a run: all users stay until the conductor ends the run.

    The rate over time follows from the schedule (`rate_profile`), not from the number of users.
    """

    def tick(self) -> tuple[int, float] | None:
        """Start the run at the first call, later advance it.

        Returns:
            Number of users and their spawn rate; None ends the run: it is over, or could not start.
        """
        if wiring.conductor is None:
            try:
                TransactionUser.fixed_count = wiring.lead()
            except FraudError as fault:
                wiring.refuse(fault)
                return None
        conductor = wiring.conductor
        if conductor is None or not conductor.tick():
            return None
        plan = conductor.plan
        return TransactionUser.fixed_count + (plan.sidecar_users if plan.sidecar else 0), 100.0

"""Locust's users: one that produces transactions in each worker, and readers of the job's sidecar."""

from typing import Any

import gevent
from locust import HttpUser, LoadTestShape, User, constant_pacing, task

from feature_store.errors import FraudError
from loadtests.locust_run import locust_stats
from loadtests.locust_run.wiring import wiring

PUMP_S = 0.1


class TransactionUser(User):
    """All producers of a worker's share of the transactions.

    The schedule is kept by a thread (`sender`): greenlets that wait for answers would not keep it. This user
    carries what the threads found to locust's statistics.
    """

    fixed_count = 1

    @task
    def produce(self) -> None:
        """Hand on new latencies, ten times a second."""
        lane = wiring.lane
        if lane is not None:
            locust_stats.feed(self.environment.events, lane.take_alerts())
        gevent.sleep(PUMP_S)


class SidecarUser(HttpUser):
    """A monitoring system, and a person with the status page: metrics, readiness and status, once a second."""

    wait_time = constant_pacing(1.0)

    def __init__(self, environment: Any) -> None:
        self.host = environment.parsed_options.tx_sidecar
        super().__init__(environment)  # type: ignore[no-untyped-call]

    @task(2)
    def metrics(self) -> None:
        """What Prometheus reads."""
        self.client.get("/metrics")

    @task
    def ready(self) -> None:
        """What an orchestrator asks; 503 is an answer, but one that fails the request."""
        self.client.get("/readyz")

    @task
    def status(self) -> None:
        """What the status page shows."""
        self.client.get("/v1/status")


class WholeRun(LoadTestShape):
    """Locust's view of a run: its users stay until the conductor says that it is over.

    The rate over time is the schedule's (`rate_profile`), not a number of users.
    """

    def tick(self) -> tuple[int, float] | None:
        """Users and their spawn rate; None at the end."""
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

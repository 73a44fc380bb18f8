"""A load test that also a busy machine can run."""

from pathlib import Path

from loadtests.locust_run.plan import LoadTestPlan
from loadtests.locust_run.verdict import Bounds

BUSY = Bounds(slip_p99_ms=5_000.0, achieved_share=0.5, backlog_s=30.0)
"""Limits for a machine that runs other tests at the same time: speed is not tested here."""


def light(directory: Path) -> LoadTestPlan:
    """Nine seconds at 300 transactions a second."""
    return LoadTestPlan(rate=300.0, for_s=7.0, warm_up_s=2.0, cards=2_000, seed=3, directory=str(directory))

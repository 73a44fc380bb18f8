"""Priority of the sidecar, and of its clients in benchmarks: below that of a job on the same machine."""

import os
import sys

NICE = 10


def lower() -> None:
    """Lower the priority, so that a job's urgent decisions run first; threads that start later inherit it."""
    os.nice(NICE)
    if sys.platform == "linux":
        # with SCHED_BATCH, a request that arrives does not preempt a decision
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

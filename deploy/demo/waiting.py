"""Waiting for something that must come, and noticing when it does not."""

import time
from collections.abc import Callable

from deploy.demo import children
from deploy.demo.options import DemoError, Options
from deploy.demo.state import Run
from deploy.local.console import Progress
from service.lag import LagWatch
from service.progress_reader import ProgressReader

POLL_S = 0.05
PATIENCE_S = 180.0
"""Without any sign of life for so long, a wait has failed."""


def wait_until_caught_up(
    options: Options,
    run: Run,
    lag: LagWatch,
    progress: ProgressReader,
    since: float,
    doing: Progress,
) -> None:
    """Wait until the job has committed everything that was on its inputs at some moment after `since`.

    Raises:
        FraudError: a process ended, or the job does nothing for minutes.
    """

    def is_level() -> bool:
        now = lag.lag
        if now is not None and now.records:
            doing(f"{now.records:,} records to go")
        return now is not None and now.taken_at > since and now.records == 0

    def batches() -> int:
        return progress.read(lambda totals: totals.batches)

    wait(is_level, "the job does not get on", batches, lambda: children.check(options.data_dir, run))


def wait(
    condition: Callable[[], bool],
    failure: str,
    sign_of_life: Callable[[], object],
    check: Callable[[], None],
) -> None:
    """Wait for a condition.

    Args:
        condition: what to wait for.
        failure: what to say if it does not come.
        sign_of_life: while its answers change, there is hope.
        check: raises when there is none.

    Raises:
        DemoError: the sign of life has not changed for `PATIENCE_S`.
    """
    seen, changed = sign_of_life(), time.monotonic()
    while not condition():
        check()
        now = sign_of_life()
        if now != seen:
            seen, changed = now, time.monotonic()
        if time.monotonic() - changed > PATIENCE_S:
            raise DemoError(f"{failure}: nothing happened for {PATIENCE_S:.0f} s; see the logs directory")
        time.sleep(POLL_S)

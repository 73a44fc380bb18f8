"""Waiting for something that must come, and noticing when it does not."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from deploy.demo import children
from deploy.demo.options import DemoError, Options
from deploy.demo.state import Run
from deploy.local.console import Progress
from service.health.lag_watch import LagWatch
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
    """Wait until all key groups have committed what was on the inputs at some moment after `since`.

    Raises:
        FraudError: a process ended, or the job does nothing for minutes.
    """

    def is_level() -> bool:
        now = lag.lag
        if now is not None and now.records:
            doing(f"{now.records:,} records to go")
        return (
            now is not None
            and now.taken_at > since
            and now.records == 0
            and have_loaded_the_tables(progress.groups)
        )

    def records() -> tuple[int, int]:
        # not the number of commits: an idle job goes on telling that it lives
        return progress.totals.counts["records"], lag.lag.records if lag.lag is not None else 0

    wait(is_level, "the job does not get on", records, lambda: children.check(options.data_dir, run))


def have_loaded_the_tables(groups: Mapping[int, Mapping[str, Any]]) -> bool:
    """Whether every key group has read the tables: only one commits their offsets, which lag is made of.

    Args:
        groups: newest progress record of each key group that has told of any.
    """
    return bool(groups) and all(
        len(groups) == newest["key_groups"] and not any(newest["table_lag"].values())
        for newest in groups.values()
    )


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

"""Waiting for a condition, with a deadline for signs of life."""

from collections.abc import Callable

from deploy.demo import children
from deploy.demo.options import DemoError
from deploy.demo.state import Run
from deploy.local.console import Progress
from deploy.local.waiting import Patience
from service.health.groups import Groups
from service.health.lag_watch import LagWatch
from service.progress_reader import ProgressReader

POLL_S = 0.05
PATIENCE_S = 180.0
"""Time without a sign of life after which a wait fails."""


def wait_until_caught_up(
    run: Run, lag: LagWatch, progress: ProgressReader, since: float, doing: Progress
) -> None:
    """Wait until all key groups have read the tables, and have committed all that the inputs contain.

    The lag must have been measured after `since`, seconds since 1970-01-01 UTC.
    """

    def has_caught_up() -> bool:
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
        # not the number of commits: an idle job commits, too
        return progress.totals.counts["records"], lag.lag.records if lag.lag is not None else 0

    wait(has_caught_up, "the job makes no progress", records, lambda: children.check(run))


def have_loaded_the_tables(groups: Groups) -> bool:
    """Return whether every key group has read the tables.

    The lag does not prove this: only one group commits the offsets of the tables, and a group that has
    written no progress record does not count in their lag.
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
        failure: beginning of the error message, if the wait fails.
        sign_of_life: returns any value; the wait goes on while the value changes.
        check: raises an error if waiting is pointless.

    Raises:
        DemoError: the sign of life has not changed for `PATIENCE_S`.
    """
    error = DemoError(f"{failure}: nothing happened for {PATIENCE_S:.0f} s; see the logs directory")
    patience = Patience(PATIENCE_S, POLL_S)
    while not condition():
        check()
        patience.wait(lambda: error, sign_of_life())

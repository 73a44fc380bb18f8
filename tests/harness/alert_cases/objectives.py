"""Cases of the alerts about objectives: how fast the error budgets burn."""

from dataclasses import dataclass

from harness.promtool import Case, Pulse, Series, Slope

JOB_ONLY = {"instance": ""}


@dataclass(frozen=True)
class Window:
    """The windows of a burn-rate alert, named by the longer, and the steps after which it fires and ends."""

    name: str
    almost: float
    """A share of slow transactions that burns the budget a little more slowly than the alert's factor."""
    slow_fires: int
    slow_quiet: int
    stale_fires: int
    stale_quiet: int
    step: str
    before: int


WINDOWS = (
    Window("1h", 0.0140, 10, 4, 2, 5, "1m", 70),
    Window("6h", 0.0058, 5, 5, 1, 6, "5m", 80),
    Window("1d", 0.0028, 7, 11, 3, 12, "10m", 150),
    Window("3d", 0.0009, 3, 11, 2, 12, "30m", 150),
)


def slow(share: float) -> Series:
    """Histogram of transactions, `share` of which took longer than half a second."""
    name = "fraud_event_to_alert_seconds"
    return {
        f'{name}_bucket{{le="0.5"}}': Slope(1e5 * (1 - share)),
        f"{name}_count": Slope(1e5),
        # the objective does not use other bounds
        f'{name}_bucket{{le="0.3"}}': Slope(0),
        f'{name}_bucket{{le="+Inf"}}': Slope(1e5),
    }


CASES = (
    *(
        Case(
            "FraudLatencyBudgetBurns",
            slow(0.0001),
            slow(0.1),
            window.slow_fires,
            window.slow_quiet,
            JOB_ONLY,
            almost=[slow(window.almost)],
            select={"window": window.name},
            before=window.before,
            step=window.step,
        )
        for window in WINDOWS
    ),
    *(
        Case(
            "FraudFreshnessBudgetBurns",
            {"fraud_lag_seconds": 0.2},
            {"fraud_lag_seconds": 12},
            window.stale_fires,
            window.stale_quiet,
            JOB_ONLY,
            almost=[{"fraud_lag_seconds": 9}],
            select={"window": window.name},
            before=window.before,
            step=window.step,
        )
        for window in WINDOWS
    ),
    *(  # rare staleness: one sample of the lag in each short window is above the objective
        Case(
            "FraudFreshnessBudgetBurns",
            {"fraud_lag_seconds": 0.2},
            {"fraud_lag_seconds": Pulse(12, 0.2, every)},
            fires,
            1,
            JOB_ONLY,
            select={"window": window},
            during=during,
            step=step,
        )
        for window, step, every, fires, during in (
            ("1h", "15s", 20, 8, 60),
            ("6h", "1m", 30, 5, 60),
            ("1d", "2m", 60, 15, 120),
            ("3d", "3m", 120, 20, 240),
        )
    ),
)

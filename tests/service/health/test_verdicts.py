"""Verdicts on windows of samples: Burrow's documented rules, our corrections of them, and properties."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.health.codes import REGISTRY, Verdict
from service.health.verdicts import Limits, PartitionSample, evaluate

pytestmark = pytest.mark.unit
LIMITS = Limits(commit_s=60.0, latency_s=20.0, held_s=30.0, idle_s=45.0)
START = 1_000.0
STEP = 10.0


def window(
    positions: list[int | None],
    lags: list[int],
    held: list[int] | None = None,
    *,
    silent_s: float = 0.0,
    waited_s: list[float | None] | None = None,
    **more: object,
) -> list[PartitionSample]:
    """Looks ten seconds apart; the job's last commit was `silent_s` before each."""
    return [
        replace(
            PartitionSample(
                at_s=START + number * STEP,
                position=position,
                lag=lag,
                held=(held or [0] * len(lags))[number],
                waiting_since_s=None
                if waited_s is None or waited_s[number] is None
                else START + number * STEP - float(waited_s[number] or 0),
                committed_at_s=START + number * STEP - silent_s,
            ),
            **more,  # type: ignore[arg-type]
        )
        for number, (position, lag) in enumerate(zip(positions, lags, strict=True))
    ]


def verdict(samples: list[PartitionSample], limits: Limits = LIMITS) -> Verdict:
    return evaluate(samples, limits).verdict


# offsets move by 100 a sample, as in the examples of Burrow's wiki; eight last longer than every limit
STEADY: list[int | None] = [100 * n for n in range(8)]
STUCK: list[int | None] = [1_000] * 8
GROWING = [10 * n for n in range(1, 9)]
FIXED = [50] * 8


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        # "if any lag within the window is zero": the lag is zero now
        (window(STEADY, [90, 80, 70, 60, 50, 40, 10, 0]), "keeping_up"),
        # "offset does not change, lag fixed or increasing" (checkIfOffsetsStalled)
        (window(STUCK, FIXED), "not_moving"),
        (window(STUCK, GROWING), "not_moving"),
        # "any lag within the window is zero": it was zero a moment ago, so the records have just come
        (window(STUCK, [0, 0, 0, 0, 0, 0, 0, 50]), "keeping_up"),
        # "offsets increase, lag the same or increasing between every pair" (checkIfLagNotDecreasing)
        (window(STEADY, FIXED), "falling_behind"),
        (window(STEADY, GROWING), "falling_behind"),
        # offsets increase, and the lag decreases
        (window(STEADY, [80, 70, 60, 50, 40, 30, 20, 10]), "catching_up"),
        # "difference between now and the last commit" (checkIfOffsetsStopped), while records wait
        (window(STUCK, GROWING, silent_s=300.0), "no_commits"),
        # "if the consumer offset and the broker offset are equal, not in error", however old the last commit
        (window(STUCK, [0] * 8, silent_s=300.0), "idle"),
        # "the consumer offset decreases" (checkIfOffsetsRewind), even though the lag decreases later
        (window([1_000, 2_000, 3_000, 2_000, 4_000], [100, 150, 200, 1_250, 300]), "position_went_back"),
    ],
)
def test_burrows_documented_rules(samples: list[PartitionSample], expected: str) -> None:
    assert evaluate(samples, LIMITS).code == expected


def test_a_slow_topic_is_not_stopped_the_moment_a_record_arrives() -> None:
    """Burrow #338: an hour without a record, hence without a commit; then a record comes.

    sample (s)        0  10  20  ...  70   80  110  140   141
    lag             0   0   0        0    1    1    1     1
    verdict                              OK   OK   OK  STOP
    """
    samples = window(STUCK, [0] * 8, silent_s=3_600.0)
    for late, expected in ((0.0, Verdict.OK), (30.0, Verdict.OK), (60.0, Verdict.OK), (61.0, Verdict.STOP)):
        came = samples[-1].at_s + STEP
        last = replace(samples[-1], at_s=came + late, lag=1, waiting_since_s=came)
        assert verdict([*samples, replace(last, at_s=came), last]) is expected, late


def test_a_rewind_counts_although_the_lag_was_zero_before() -> None:
    samples = window([900, 1_000, 1_000, 0], [0, 0, 0, 1_000])
    result = evaluate(samples, LIMITS)
    assert (result.verdict, result.since_s) == (Verdict.REWIND, samples[-1].at_s)
    assert evaluate(samples[:3], LIMITS).verdict is Verdict.OK


def test_reloaded_tables_are_no_rewind() -> None:
    before = window([1_000], [0])
    loading = [
        replace(sample, at_s=sample.at_s + STEP) for sample in window([200, 600], [800, 400], loading=True)
    ]
    after = [replace(sample, at_s=sample.at_s + 3 * STEP) for sample in window([1_000], [0])]
    assert evaluate([*before, *loading], LIMITS).code == "loading_tables"
    assert evaluate([*before, *loading, *after], LIMITS).code == "keeping_up"


def test_a_record_in_progress_at_each_reading_is_no_warning() -> None:
    samples = window(STEADY, [1] * 8, waited_s=[0.2] * 8)
    assert evaluate(samples, LIMITS).code == "keeping_up"


def test_a_dip_of_the_lag_does_not_hide_a_growing_wait() -> None:
    lags = [100, 200, 150, 300, 250, 400, 350, 500]
    waits: list[float | None] = [10.0 + 5 * n for n in range(8)]
    assert evaluate(window(STEADY, lags, waited_s=waits), LIMITS).code == "falling_behind"
    assert evaluate(window(STEADY, lags, waited_s=waits[::-1]), LIMITS).code != "falling_behind"
    older: list[float | None] = [300.0 - 5 * n for n in range(8)]
    assert evaluate(window(STEADY, lags, waited_s=older), LIMITS).code == "catching_up"


def test_records_held_back_by_an_open_transaction_are_blocked_and_no_lag() -> None:
    held = window(STUCK, [0] * 8, [0, 0, 0, 5, 5, 6, 7, 8])
    result = evaluate(held, LIMITS)
    assert (result.code, result.since_s) == ("open_transaction", held[3].at_s)
    assert evaluate(held[:6], LIMITS).verdict is Verdict.OK
    # records before the open transaction are readable: they are the job's own lag
    assert evaluate(window(STUCK, FIXED, [9] * 8), LIMITS).verdict is Verdict.STALL


def test_a_log_that_ends_before_the_committed_offset_is_no_lag_of_zero() -> None:
    lost = [replace(sample, lost=3) for sample in window(STUCK, [0] * 8)]
    result = evaluate(lost, LIMITS)
    assert (result.code, result.verdict, result.since_s) == ("log_behind_output", Verdict.STOP, lost[0].at_s)
    # for a moment, as after a change of the leader
    once = [*window(STUCK[:7], [0] * 7), replace(lost[-1], at_s=START + 7 * STEP)]
    assert evaluate(once, LIMITS).verdict.is_fine


def test_a_sidecar_that_has_just_started_has_a_verdict_at_once() -> None:
    """One sample: a record has waited for long, and the progress record shows that the job has not moved."""
    sample = PartitionSample(
        START, 50, 10, 0, waiting_since_s=START - 500, committed_at_s=START - 1, active_at_s=START - 400
    )
    assert evaluate([sample], LIMITS).code == "not_moving"
    assert evaluate([sample], LIMITS).since_s == START - 400
    assert evaluate([replace(sample, committed_at_s=START - 90)], LIMITS).code == "no_commits"
    never = replace(sample, position=None, committed_at_s=None, active_at_s=None)
    assert evaluate([never], LIMITS).code == "never_committed"
    assert evaluate([replace(never, waiting_since_s=START - 5)], LIMITS).verdict is Verdict.OK


def test_without_records_a_partition_is_idle_after_a_while() -> None:
    samples = window(STUCK, [0] * 8)
    assert [evaluate(samples[:n], LIMITS).verdict for n in (1, 5, 6, 8)] == ["OK", "OK", "IDLE", "IDLE"]
    long_idle = replace(samples[0], active_at_s=START - 3_600)
    assert evaluate([long_idle], LIMITS).since_s == START - 3_600


def test_verdicts_are_ordered_by_severity() -> None:
    assert Verdict.STOP.severity > Verdict.STALL.severity > Verdict.WARN.severity > Verdict.OK.severity
    assert {code.verdict for code in REGISTRY.values()} == set(Verdict)


offsets = st.integers(0, 5)
seconds = st.floats(0, 200, allow_nan=False)


@st.composite
def windows(draw: st.DrawFn) -> list[PartitionSample]:
    at, samples = START, []
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.floats(0.1, 40))
        lag, held = draw(offsets), draw(offsets)
        waits = draw(st.none() | seconds) if lag or held else None
        silent, active = draw(st.none() | seconds), draw(st.none() | seconds)
        samples.append(
            PartitionSample(
                at,
                draw(st.none() | offsets),
                lag,
                held,
                None if waits is None else at - waits,
                None if silent is None else at - silent,
                None if active is None else at - active,
                draw(st.sampled_from([False, False, False, True])),
            )
        )
    return samples


limits = st.builds(Limits, *[st.floats(0.1, 120)] * 4)


@given(windows(), limits)
def test_without_waiting_records_no_job_is_stopped_stalled_or_slow(
    samples: list[PartitionSample], found: Limits
) -> None:
    still = [*samples[:-1], replace(samples[-1], lag=0, held=0)]
    assert verdict(still, found) in (Verdict.OK, Verdict.IDLE, Verdict.REWIND)


@given(windows(), limits)
def test_rewind_only_when_the_position_went_back(samples: list[PartitionSample], found: Limits) -> None:
    known = [None if sample.loading else sample.position for sample in samples]
    falls = any(a is not None and b is not None and b < a for a, b in pairwise(known))
    assert (verdict(samples, found) is Verdict.REWIND) == falls


@given(windows(), limits)
def test_blocked_only_with_held_records_and_without_lag(
    samples: list[PartitionSample], found: Limits
) -> None:
    if verdict(samples, found) is Verdict.BLOCKED:
        assert samples[-1].held > 0
        assert samples[-1].lag == 0


@given(windows(), limits)
def test_stop_and_stall_take_longer_than_their_limit(samples: list[PartitionSample], found: Limits) -> None:
    result, last = evaluate(samples, found), samples[-1]
    assert result.since_s <= last.at_s
    if result.verdict in (Verdict.STOP, Verdict.STALL):
        assert last.lag > 0
        assert last.at_s - result.since_s > found.commit_s
    if result.code == "no_commits":
        assert last.committed_at_s is not None
        assert last.at_s - last.committed_at_s > found.commit_s
    if result.code == "idle":
        assert last.at_s - result.since_s > found.idle_s


@given(windows(), limits)
def test_greater_limits_never_make_a_verdict_worse(samples: list[PartitionSample], found: Limits) -> None:
    lax = Limits(*(2 * limit for limit in (found.commit_s, found.latency_s, found.held_s, found.idle_s)))
    # OK instead of IDLE is no worse
    assert verdict(samples, lax).severity <= max(verdict(samples, found).severity, Verdict.OK.severity)

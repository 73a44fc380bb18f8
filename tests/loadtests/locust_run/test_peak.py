import random
from dataclasses import asdict, replace

import pytest

from loadtests.locust_run import peak
from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.peak import Probe
from loadtests.locust_run.plan import LoadTestPlan
from loadtests.locust_run.result import Result
from loadtests.locust_run.search import assess, grows, trend
from loadtests.locust_run.verdict import Bounds

pytestmark = pytest.mark.unit
GOOD = Result(
    asdict(LoadTestPlan(for_s=25.0, warm_up_s=2.0)), 1, latency_ms={"p99": 20.0}, slip_ms={"p99": 1.0},
    backlog_at_end=100, drained_s=0.4,
)  # fmt: skip


@pytest.mark.parametrize("capacity", [300.0, 1_000.0, 7_777.0, 31_000.0])
def test_bisection_finds_the_capacity_within_its_precision(capacity: float) -> None:
    def probe(rate: float) -> Probe:
        return Probe(rate, rate <= capacity, () if rate <= capacity else ("too slow",))

    search_result = peak.find(probe, 1_000.0, most=100_000.0, precision=0.05, probes=30)
    assert search_result.rate is not None
    assert search_result.rate <= capacity <= search_result.rate * 1.06
    assert search_result.limited_by == "too slow"


def test_no_rate_above_the_limit_is_tried() -> None:
    search_result = peak.find(lambda rate: Probe(rate, True), 1_000.0, most=3_000.0)
    assert [probe.rate for probe in search_result.probes] == [1_000, 2_000, 3_000]
    assert (search_result.rate, search_result.limited_by) == (3_000, "")


def test_there_is_no_peak_if_no_rate_passes() -> None:
    search_result = peak.find(lambda rate: Probe(rate, False, ("dead",)), 1_000.0, most=9_000.0)
    assert search_result.rate is None
    assert search_result.limited_by == "dead"


def test_the_generators_limit_is_no_peak_of_the_job() -> None:
    def probe(rate: float) -> Probe:
        return Probe(rate, rate < 4_000, ("slip",), generator_limited=True)

    assert peak.find(probe, 1_000.0, most=9_000.0).limited_by == "the generator"


def test_a_search_without_room_is_refused() -> None:
    with pytest.raises(LoadTestError, match="--from"):
        peak.find(lambda rate: Probe(rate, True), 10.0, most=1.0)


@pytest.mark.parametrize("seed", range(5))
def test_a_growing_lag_is_distinguished_from_a_noisy_one(seed: int) -> None:
    chance = random.Random(seed)
    noisy = [(at / 2, chance.randrange(0, 2_000)) for at in range(60)]
    falling_behind = [(at, lag + int(at * 300)) for at, lag in noisy]
    assert not grows(noisy, 10_000.0, 0, 30)
    assert grows(falling_behind, 10_000.0, 0, 30)


def test_the_slope_is_that_of_the_line() -> None:
    slope = trend([(at / 2, 100 + 35 * at) for at in range(20)])
    assert slope is not None
    assert slope.slope == pytest.approx(70.0)
    assert slope.error == pytest.approx(0.0, abs=1e-6)


def test_few_samples_give_no_slope() -> None:
    assert trend([(1.0, 5), (2.0, 500)]) is None
    assert not grows([(1.0, 5), (2.0, 500)], 10.0, 0, 10)


def test_a_growing_lag_alone_fails_a_rate_as_a_limit_of_the_job() -> None:
    lag = [(at / 2, 50 * at) for at in range(60)]
    good = replace(GOOD, offered_rate=5_000.0, achieved_rate=5_000.0, lag=[(at, 40) for at, _ in lag])
    assert assess(5_000.0, good, Bounds()).passed
    behind = assess(1_000.0, replace(good, lag=lag), Bounds())
    assert (behind.passed, behind.generator_limited) == (False, False)
    late = assess(1_000.0, replace(good, slip_ms={"p99": 50.0}), Bounds())
    assert (late.passed, late.generator_limited) == (False, True)

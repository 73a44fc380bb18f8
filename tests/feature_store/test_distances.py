"""Distances between countries do not depend on the C library that computes the sines."""

import math
from itertools import combinations

import pytest

from feature_store.catalogue import HOUR_MS
from feature_store.kernels.card_features import _speed_kmh
from feature_store.kernels.countries import CENTROIDS
from feature_store.layout import country_code, country_name
from loadtests.oracle.geography import EARTH_RADIUS_KM, kilometres

pytestmark = pytest.mark.unit

KNOWN = [code for code in range(len(CENTROIDS)) if not math.isnan(CENTROIDS[code, 0])]
DIAMETER_M = 2000 * EARTH_RADIUS_KM
UNITS = 16
"""Largest error of a C library after all steps, in units in the last place; it promises 1 or 2 a step."""


def metres(a: int, b: int) -> float:
    """The haversine formula of the textbooks, not rounded."""
    (phi_a, lambda_a), (phi_b, lambda_b) = (map(math.radians, CENTROIDS[code]) for code in (a, b))
    h = math.sin((phi_b - phi_a) / 2) ** 2
    h += math.cos(phi_a) * math.cos(phi_b) * math.sin((lambda_b - lambda_a) / 2) ** 2
    return DIAMETER_M * math.asin(min(1.0, math.sqrt(h)))


def last_bits(distance: float) -> float:
    """Error of a distance, in metres, if argument and result of the arc sine are off by UNITS each."""
    angle = distance / DIAMETER_M
    return DIAMETER_M * UNITS * math.ulp(1.0) * (angle + math.tan(angle))


def test_no_distance_is_so_near_to_half_a_metre_that_the_last_bits_change_its_rounding() -> None:
    distances = [metres(a, b) for a, b in combinations(KNOWN, 2)]
    assert len(distances) > 10_000
    close = [far for far in distances if abs(far % 1 - 0.5) <= last_bits(far)]
    assert close == []


def test_a_code_that_no_country_has_is_at_an_unknown_distance() -> None:
    unassigned = country_code("QQ")
    assert unassigned not in KNOWN
    for other in (*KNOWN, country_code("QR"), country_code("ZZ")):
        for a, b in ((unassigned, other), (other, unassigned)):
            assert math.isnan(_speed_kmh(a, b, HOUR_MS))
            assert math.isnan(kilometres(country_name(a), country_name(b)))


def test_the_kernel_and_the_oracle_have_the_same_distances_bit_for_bit() -> None:
    for a, b in combinations(KNOWN, 2):
        assert _speed_kmh(a, b, HOUR_MS) == kilometres(country_name(a), country_name(b))

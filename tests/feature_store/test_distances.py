"""Distances between countries are the same bytes whatever C library computes the sines."""

import math
from itertools import combinations

import pytest

from feature_store.countries import CENTROIDS
from feature_store.kernels import _speed_kmh
from feature_store.layout import country_name
from loadtests.oracle.geography import EARTH_RADIUS_KM, kilometres

pytestmark = pytest.mark.unit

HOUR_MS = 3_600_000
KNOWN = [code for code in range(len(CENTROIDS)) if not math.isnan(CENTROIDS[code, 0])]
LAST_BITS_M = 1e-7
"""Libraries differ by some 4e-9 m at the antipodes: one unit in the last place of a double."""


def metres(a: int, b: int) -> float:
    """The haversine formula as it is written in books, not rounded."""
    (phi_a, lambda_a), (phi_b, lambda_b) = (map(math.radians, CENTROIDS[code]) for code in (a, b))
    h = math.sin((phi_b - phi_a) / 2) ** 2
    h += math.cos(phi_a) * math.cos(phi_b) * math.sin((lambda_b - lambda_a) / 2) ** 2
    return 2000 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(h)))


def test_no_distance_is_so_near_to_half_a_metre_that_last_bits_decide() -> None:
    pairs = list(combinations(KNOWN, 2))
    assert len(pairs) > 10_000
    assert min(abs(metres(a, b) % 1 - 0.5) for a, b in pairs) > LAST_BITS_M


def test_the_kernel_and_the_oracle_have_the_same_distances_bit_for_bit() -> None:
    for a, b in combinations(KNOWN, 2):
        assert _speed_kmh(a, b, HOUR_MS) == kilometres(country_name(a), country_name(b))

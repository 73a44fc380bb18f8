"""Distance between two countries, for the implied travel speed."""

import math

from feature_store.kernels.countries import CENTROIDS

EARTH_RADIUS_KM = 6371.0


def kilometres(a: str, b: str) -> float:
    """Return the distance of two countries' centroids in km, rounded to metres.

    NaN if either is ZZ (unknown), or if they differ and one is a code that no country has.
    """
    if "ZZ" in (a, b):
        return math.nan
    if a == b:
        return 0.0
    (lat_a, lon_a), (lat_b, lon_b) = _centroid(a), _centroid(b)
    h = (
        math.sin((lat_b - lat_a) / 2) ** 2
        + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    )
    if math.isnan(h):
        return math.nan
    return round(2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(h))) * 1000) / 1000


def _centroid(country: str) -> tuple[float, float]:
    """Return latitude and longitude in radians."""
    row = (ord(country[0]) - ord("A")) * 26 + ord(country[1]) - ord("A")
    latitude, longitude = CENTROIDS[row]
    return math.radians(latitude), math.radians(longitude)

"""The countries of cards and merchants, each with its currency and its share of both."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feature_store.kernels.countries import CENTROIDS
from feature_store.layout import country_code

FAR_KM = 3_000.0
"""A card cannot be present in two places further apart than this within minutes."""
_EARTH_KM = 6_371.0


@dataclass(frozen=True)
class Country:
    """One country of the simulated world."""

    code: str
    """ISO 3166-1 alpha-2 code."""
    currency: str
    """ISO 4217 code; amounts are of similar size in all currencies."""
    weight: float
    """Relative number of cards and merchants."""


COUNTRIES = (
    Country("AT", "EUR", 3),
    Country("AU", "AUD", 3),
    Country("BE", "EUR", 3),
    Country("BR", "BRL", 3),
    Country("CA", "CAD", 3),
    Country("CH", "CHF", 3),
    Country("DE", "EUR", 16),
    Country("ES", "EUR", 8),
    Country("FR", "EUR", 12),
    Country("GB", "GBP", 12),
    Country("GR", "EUR", 2),
    Country("IE", "EUR", 2),
    Country("IT", "EUR", 9),
    Country("MX", "MXN", 2),
    Country("NL", "EUR", 5),
    Country("NZ", "NZD", 1),
    Country("PT", "EUR", 2),
    Country("SG", "SGD", 1),
    Country("TH", "THB", 1),
    Country("US", "USD", 12),
    Country("ZA", "ZAR", 1),
)

CODES = np.array([c.code for c in COUNTRIES])
CURRENCIES = np.array([c.currency for c in COUNTRIES])
WEIGHTS = np.array([c.weight for c in COUNTRIES]) / sum(c.weight for c in COUNTRIES)


def distances_km() -> npt.NDArray[np.float64]:
    """Return the distances of the countries' centroids (haversine), km, float64[countries, countries]."""
    latitude, longitude = np.radians(CENTROIDS[[country_code(c.code) for c in COUNTRIES]]).T
    half = (
        np.sin((latitude[:, None] - latitude) / 2) ** 2
        + np.cos(latitude[:, None]) * np.cos(latitude) * np.sin((longitude[:, None] - longitude) / 2) ** 2
    )
    distances: npt.NDArray[np.float64] = 2 * _EARTH_KM * np.arcsin(np.sqrt(half))
    return distances


FAR = [np.flatnonzero(row > FAR_KM) for row in distances_km()]
"""For each country, the indices of countries further than FAR_KM."""

"""The simulated world, determined by a seed: merchants, cards and their profiles."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from feature_store.errors import FraudError
from loadtests.simulator import countries, tokens
from loadtests.simulator.randomness import generator

F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]

FAVOURITES = 8
MAX_CARDS, MAX_MERCHANTS = 100_000_000, 1_000_000
STATUSES = np.array(["active", "blocked"])

MCC = np.array(["5411", "5541", "5812", "5912", "5732", "5944", "4511", "7011", "6011", "5999"])
"""Grocery, fuel, restaurant, pharmacy, electronics, jewellery, airline, hotel, cash machine, other shops."""
_MCC_SHARE = np.array([0.24, 0.10, 0.20, 0.08, 0.08, 0.03, 0.03, 0.05, 0.07, 0.12])
_MCC_FACTOR = np.array([0.7, 0.9, 0.6, 0.4, 2.5, 3.0, 5.0, 3.0, 1.8, 1.0])
_CASH = 8

CHANNELS = np.array(["pos", "ecom", "atm"])
POS, ECOM, ATM = 0, 1, 2


class WorldError(FraudError):
    """Numbers of cards or merchants, or a seed, are out of range."""


@dataclass(frozen=True, eq=False)
class Merchants:
    """Merchants, sorted by country; arrays of length `merchants` unless stated otherwise."""

    ids: pa.StringArray
    """m-000000, m-000001, ..."""
    country: npt.NDArray[np.int16]
    """Index into `countries.COUNTRIES`."""
    mcc: npt.NDArray[np.int8]
    """Index into `MCC`."""
    amount_factor: F64
    """Amounts at the merchant, as a multiple of the card's mean amount."""
    ecom_share: F64
    """Share of online sales."""
    first: npt.NDArray[np.int64]
    """int64[countries + 1]: the merchants of country c are first[c]:first[c + 1]."""
    cdf: F64
    """float64[merchants + 1]: cumulative popularity, 0 to 1."""
    present_cdf: F64
    """float64[merchants + 1]: cumulative popularity, 0 to 1, without merchants that sell only online."""

    def pick(self, country: npt.NDArray[np.integer], u: F64, *, present: bool = False) -> I32:
        """Pick a merchant of each given country by popularity; u uniform in [0, 1)."""
        cdf = self.present_cdf if present else self.cdf
        low, high = cdf[self.first[country]], cdf[self.first[country + 1]]
        index = np.searchsorted(cdf, low + u * (high - low), side="right") - 1
        picked: I32 = np.clip(index, self.first[country], self.first[country + 1] - 1).astype(np.int32)
        return picked

    def pick_anywhere(self, u: F64) -> I32:
        """Pick merchants of the whole world by popularity; u uniform in [0, 1)."""
        index = np.searchsorted(self.cdf, u, side="right") - 1
        return np.minimum(index, len(self.ids) - 1).astype(np.int32)

    def channel(self, merchant: I32, u: F64) -> npt.NDArray[np.int8]:
        """Return the channel (index into `CHANNELS`) of a sale at each merchant; u uniform in [0, 1)."""
        by_hand = self.by_hand(merchant)
        return np.where(u < self.ecom_share[merchant], np.int8(ECOM), by_hand)

    def by_hand(self, merchant: I32) -> npt.NDArray[np.int8]:
        """Return the channel (index into `CHANNELS`) of a card-present sale."""
        return np.where(self.mcc[merchant] == _CASH, np.int8(ATM), np.int8(POS))


@dataclass(frozen=True, eq=False)
class Cards:
    """Cards and their profiles; arrays of length `cards` unless stated otherwise."""

    ids: pa.StringArray
    """card-00000000, card-00000001, ..."""
    country: npt.NDArray[np.int16]
    """Home country, index into `countries.COUNTRIES`."""
    mean_amount: F64
    """Mean amount in units of the card's currency."""
    wheel: I32
    """Card numbers, repeated in proportion to their shares of transactions; the median card four times."""
    favourites: I32
    """int32[cards, FAVOURITES]: the merchants at which the card is used most."""
    by_country: I32
    """Card numbers sorted by home country."""
    first: npt.NDArray[np.int64]
    """int64[countries + 1]: the cards of country c are by_country[first[c]:first[c + 1]]."""
    status: npt.NDArray[np.int8]
    """Index into `STATUSES`."""
    credit_limit: F64
    risk_tier: npt.NDArray[np.int16]
    opened_on: npt.NDArray[np.int32]
    """Days since 1970-01-01."""
    has_profile: npt.NDArray[np.bool_]
    """False: the profile is not in the initial load; it is inserted during the stream."""

    @cached_property
    def keys(self) -> npt.NDArray[np.object_]:
        """Kafka keys, one bytes object per card, shared by its records."""
        keys: npt.NDArray[np.object_] = self.ids.cast(pa.binary()).to_numpy(zero_copy_only=False)
        return keys

    def pick(self, u: F64) -> I32:
        """Pick cards by activity; u uniform in [0, 1)."""
        # one memory access; a search in a cumulative sum of millions would take half a microsecond
        picked: I32 = self.wheel[(u * len(self.wheel)).astype(np.int64)]
        return picked

    def pick_from(self, country: npt.NDArray[np.integer], u: F64) -> I32:
        """Pick any card of each given country, or of the whole world for a country without cards."""
        low, high = self.first[country], self.first[country + 1]
        low, high = np.where(low == high, 0, low), np.where(low == high, len(self.ids), high)
        picked: I32 = self.by_country[low + (u * (high - low)).astype(np.int64)]
        return picked


@dataclass(frozen=True, eq=False)
class World:
    """Cards and merchants that follow from a seed."""

    seed: int
    merchants: Merchants
    cards: Cards

    @classmethod
    def create(cls, seed: int = 0, cards: int = 50_000, merchants: int = 5_000) -> "World":
        """Create a world.

        Raises:
            WorldError: for a size or seed out of range.
        """
        fewest = len(countries.COUNTRIES)
        if not 1 <= cards <= MAX_CARDS:
            raise WorldError(f"{cards} cards are out of range; give 1 to {MAX_CARDS}")
        if not fewest <= merchants <= MAX_MERCHANTS:
            raise WorldError(f"{merchants} merchants are out of range; give {fewest} to {MAX_MERCHANTS}")
        if seed < 0:
            raise WorldError(f"seed {seed} is negative; give 0 or more")
        shops = _merchants(seed, merchants)
        return cls(seed, shops, _cards(seed, cards, shops))


def _bounds(country: np.ndarray) -> npt.NDArray[np.int64]:
    """Return the start of each country in a sorted array of countries, and the end of the last."""
    return np.searchsorted(country, np.arange(len(countries.COUNTRIES) + 1)).astype(np.int64)


def _merchants(seed: int, n: int) -> Merchants:
    rng = generator(seed, "merchants")
    country_count = len(countries.COUNTRIES)
    # at least one merchant in every country, so that a card on a trip there can pay
    country = np.concatenate(
        [np.arange(country_count), rng.choice(country_count, n - country_count, p=countries.WEIGHTS)]
    )
    country = np.sort(country).astype(np.int16)
    first = _bounds(country)
    mcc = rng.choice(len(MCC), n, p=_MCC_SHARE).astype(np.int8)
    ecom_share = rng.choice([0.0, 0.3, 1.0], n, p=[0.6, 0.2, 0.2])
    ecom_share[mcc == _CASH] = 0.0
    ecom_share[first[:-1]] = 0.0
    popularity = rng.lognormal(0.0, 1.2, n)
    present = np.where(ecom_share < 1.0, popularity, 0.0)
    return Merchants(
        ids=tokens.numbered("m-", np.arange(n), 6),
        country=country,
        mcc=mcc,
        amount_factor=_MCC_FACTOR[mcc],
        ecom_share=ecom_share,
        first=first,
        cdf=np.append(0.0, np.cumsum(popularity) / popularity.sum()),
        present_cdf=np.append(0.0, np.cumsum(present) / present.sum()),
    )


def _cards(seed: int, n: int, merchants: Merchants) -> Cards:
    rng = generator(seed, "cards")
    country = rng.choice(len(countries.COUNTRIES), n, p=countries.WEIGHTS).astype(np.int16)
    by_country = np.argsort(country, kind="stable").astype(np.int32)
    mean_amount: F64 = np.round(rng.lognormal(np.log(40.0), 0.5, n), 2)
    # the busiest cards are used about ten times as often as the median
    activity = np.minimum(rng.lognormal(0.0, 0.7, n), 10.0)
    turns = np.maximum(1, np.rint(4 * activity)).astype(np.int64)
    credit_limit = np.round(np.clip(mean_amount * rng.uniform(30, 150, n), 500, 50_000), -2).astype(
        np.float64
    )
    favourites = np.empty((n, FAVOURITES), dtype=np.int32)
    for column in range(FAVOURITES):
        favourites[:, column] = merchants.pick(country, rng.random(n))
    return Cards(
        ids=tokens.numbered("card-", np.arange(n), 8),
        country=country,
        mean_amount=mean_amount,
        wheel=np.repeat(np.arange(n, dtype=np.int32), turns),
        favourites=favourites,
        by_country=by_country,
        first=_bounds(country[by_country]),
        status=(rng.random(n) < 0.001).astype(np.int8),
        credit_limit=credit_limit,
        risk_tier=rng.choice(4, n, p=[0.7, 0.2, 0.08, 0.02]).astype(np.int16),
        # 2010-01-01 to 2025-12-31: fixed, so that the same seed always gives the same profiles
        opened_on=rng.integers(14_610, 20_454, n).astype(np.int32),
        has_profile=rng.random(n) >= 0.005,
    )

"""Fraud campaigns of the simulator: series of frauds of one scenario, with one card or at one merchant.

Durations are proportional to the mean time between two transactions of a card (number of cards divided by
the rate), within realistic bounds, so that a burst stands out both at one event per second and at 200,000.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from feature_store.errors import FraudError
from loadtests.simulator import countries
from loadtests.simulator.randomness import generator
from loadtests.simulator.world import ECOM, F64, I32, World

SCENARIOS = np.array(["", "stolen_card", "compromised_merchant", "unusual_amount", "impossible_travel"])
"""Names by code; 0 is a genuine transaction."""
GENUINE, STOLEN, COMPROMISED, UNUSUAL, TRAVEL = range(5)

_SIZES = {STOLEN: (6, 18), COMPROMISED: (20, 60), UNUSUAL: (1, 3), TRAVEL: (1, 3)}
"""Minimum and maximum of transactions of a campaign."""
_SLOT_FRAUDS = 20_000
"""Approximate maximum of frauds made at once, so that a stream at full rate does not pause."""
_SECOND = 1_000.0
_DAY = 86_400_000.0


@dataclass(frozen=True)
class FraudMix:
    """Share of fraud, and of its scenarios."""

    share: float = 0.01
    """Share of fraud in all transactions, 0 to 0.5."""
    stolen_card: float = 0.40
    """Relative share of fraud: a velocity burst with one card."""
    compromised_merchant: float = 0.25
    """Relative share of fraud: many cards at one merchant, ordinary amounts."""
    unusual_amount: float = 0.20
    """Relative share of fraud: several times the card's usual amount."""
    impossible_travel: float = 0.15
    """Relative share of fraud: card present in a far country between purchases at home."""
    siege_days: float = 3.0
    """Longest time for which a compromised merchant is used, days."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 0.5:
            raise FraudError(f"fraud share {self.share} is out of range; give 0 to 0.5")
        if not 0.01 <= self.siege_days <= 1_000:
            raise FraudError(f"a siege of {self.siege_days} days is out of range; give 0.01 to 1,000")
        if min(self.weights) < 0 or sum(self.weights) <= 0:
            raise FraudError("shares of the fraud scenarios must be 0 or more and not all 0; correct them")

    @property
    def weights(self) -> tuple[float, ...]:
        """Relative shares in the order of `SCENARIOS[1:]`."""
        return self.stolen_card, self.compromised_merchant, self.unusual_amount, self.impossible_travel


@dataclass(frozen=True, eq=False)
class Frauds:
    """Fraudulent transactions, sorted by time; arrays of equal length."""

    at: F64
    """ms since 1970-01-01 UTC."""
    card: I32
    merchant: I32
    amount: F64
    channel: npt.NDArray[np.int8]
    scenario: npt.NDArray[np.int8]
    step: I32
    """Position in its campaign, from 0."""

    def __len__(self) -> int:
        return len(self.at)

    def take(self, which: slice | np.ndarray) -> "Frauds":
        """Select rows by a slice, a mask or indices."""
        return Frauds(*(getattr(self, f.name)[which] for f in fields(self)))

    @staticmethod
    def concat(parts: "list[Frauds]") -> "Frauds":
        """Concatenate parts, sorted by time."""
        merged = Frauds(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Frauds)))
        return merged.take(np.argsort(merged.at, kind="stable"))


class Campaigns:
    """All frauds of one stream, in time order.

    The arguments alone determine the frauds: `Stream` and `ProfileChurn`, which blocks stolen cards, each
    create their own object and get the same frauds.
    """

    def __init__(self, world: World, rate: float, start_ms: int, mix: FraudMix) -> None:
        self._world, self._start_ms, self._mix = world, start_ms, mix
        self._per_ms = rate * mix.share / 1_000
        rhythm = len(world.cards.ids) / rate * 1_000
        self._burst_gap = float(np.clip(rhythm / 20, 0.02 * _SECOND, 20 * _SECOND))
        self._slow_gap = float(np.clip(rhythm / 2, 0.2 * _SECOND, _DAY / 4))
        self._siege = float(np.clip(rhythm * 20, 60 * _SECOND, mix.siege_days * _DAY))
        longest = max(
            self._siege, 1.5 * self._burst_gap * _SIZES[STOLEN][1], 1.5 * self._slow_gap * _SIZES[UNUSUAL][1]
        )
        self._slot_ms = min(longest / 4, _SLOT_FRAUDS / self._per_ms) if self._per_ms else longest
        self._slots_back = math.ceil(longest / self._slot_ms) + 1
        # slot 0 is `_slots_back` slots before the stream, so earlier campaigns are under way at its start
        self._next_slot = 0
        self._waiting = self._slot(0).take(slice(0, 0))

    def until(self, end_ms: float) -> Frauds:
        """Return the frauds before `end_ms` that no earlier call returned, from the stream's start on."""
        while self._start_ms + (self._next_slot - self._slots_back) * self._slot_ms < end_ms:
            self._waiting = Frauds.concat([self._waiting, self._slot(self._next_slot)])
            self._next_slot += 1
        cut = int(np.searchsorted(self._waiting.at, end_ms, side="left"))
        due, self._waiting = self._waiting.take(slice(0, cut)), self._waiting.take(slice(cut, None))
        return due.take(due.at >= self._start_ms)

    def _slot(self, slot: int) -> Frauds:
        """Return the whole campaigns that begin in one time slot."""
        begin = self._start_ms + (slot - self._slots_back) * self._slot_ms
        rng = generator(self._world.seed, "campaigns", self._start_ms, slot)
        makers: dict[int, Callable[[np.random.Generator, F64, I32], Frauds]] = {
            STOLEN: self._stolen,
            COMPROMISED: self._compromised,
            UNUSUAL: self._unusual,
            TRAVEL: self._travel,
        }
        parts = []
        for (scenario, make), weight in zip(makers.items(), self._mix.weights, strict=True):
            fewest, most = _SIZES[scenario]
            expected = self._per_ms * self._slot_ms * weight / sum(self._mix.weights) / ((fewest + most) / 2)
            campaigns = int(rng.poisson(expected))
            starts = begin + rng.random(campaigns) * self._slot_ms
            sizes = rng.integers(fewest, most + 1, campaigns).astype(np.int32)
            parts.append(make(rng, starts, sizes))
        return Frauds.concat(parts)

    def _one_card(self, rng: np.random.Generator, starts: F64, sizes: I32, gap: float) -> tuple[F64, I32]:
        """Return times and cards of campaigns with one card each."""
        first = np.cumsum(sizes) - sizes
        walked = np.cumsum(rng.uniform(0.5, 1.5, sizes.sum()) * gap)
        at = np.repeat(starts - walked[first], sizes) + walked
        return at, np.repeat(self._world.cards.pick(rng.random(len(starts))), sizes)

    def _stolen(self, rng: np.random.Generator, starts: F64, sizes: I32) -> Frauds:
        """Return bursts on stolen cards: a small payment to test the card, then many quick ones."""
        at, card = self._one_card(rng, starts, sizes, self._burst_gap)
        merchant = self._world.merchants.pick(self._world.cards.country[card], rng.random(len(at)))
        spent = self._world.cards.mean_amount[card] * rng.uniform(0.8, 4.0, len(at))
        amount = np.where(_steps(sizes) == 0, rng.uniform(0.5, 3.0, len(at)), spent)
        channel = self._world.merchants.channel(merchant, rng.random(len(at)))
        return _frauds(at, card, merchant, amount, channel, STOLEN, sizes)

    def _compromised(self, rng: np.random.Generator, starts: F64, sizes: I32) -> Frauds:
        """Return frauds with many copied cards at the merchant that copied them."""
        merchant = np.repeat(self._world.merchants.pick_anywhere(rng.random(len(starts))), sizes)
        at = np.repeat(starts, sizes) + rng.random(len(merchant)) * self._siege
        card = self._world.cards.pick_from(self._world.merchants.country[merchant], rng.random(len(at)))
        usual = self._world.cards.mean_amount[card] * self._world.merchants.amount_factor[merchant]
        amount = usual * rng.lognormal(0.2, 0.5, len(at))
        channel = self._world.merchants.channel(merchant, rng.random(len(at)))
        return _frauds(at, card, merchant, amount, channel, COMPROMISED, sizes)

    def _unusual(self, rng: np.random.Generator, starts: F64, sizes: I32) -> Frauds:
        """Return a few large purchases per card, mostly online."""
        at, card = self._one_card(rng, starts, sizes, self._slow_gap)
        merchant = self._world.merchants.pick(self._world.cards.country[card], rng.random(len(at)))
        amount = self._world.cards.mean_amount[card] * rng.uniform(6, 20, len(at))
        by_hand = self._world.merchants.by_hand(merchant)
        channel = np.where(rng.random(len(at)) < 0.7, np.int8(ECOM), by_hand)
        return _frauds(at, card, merchant, amount, channel, UNUSUAL, sizes)

    def _travel(self, rng: np.random.Generator, starts: F64, sizes: I32) -> Frauds:
        """Return card-present payments in a far country."""
        at, card = self._one_card(rng, starts, sizes, self._slow_gap)
        u = rng.random(len(at))
        home = self._world.cards.country[card]
        away = np.array(
            [far[int(x * len(far))] for far, x in zip((countries.FAR[h] for h in home), u, strict=True)]
        )
        merchant = self._world.merchants.pick(away.astype(np.int64), rng.random(len(at)), present=True)
        amount = self._world.cards.mean_amount[card] * rng.uniform(0.5, 3.0, len(at))
        channel = self._world.merchants.by_hand(merchant)
        return _frauds(at, card, merchant, amount, channel, TRAVEL, sizes)


def _steps(sizes: I32) -> I32:
    """Return 0, 1, 2, ... within each campaign."""
    return np.arange(sizes.sum(), dtype=np.int32) - np.repeat(np.cumsum(sizes) - sizes, sizes).astype(
        np.int32
    )


def _frauds(
    at: F64, card: I32, merchant: I32, amount: F64, channel: npt.NDArray[np.int8], scenario: int, sizes: I32
) -> Frauds:
    code = np.full(len(at), scenario, dtype=np.int8)
    paid = np.round(np.clip(amount, 0.5, 25_000), 2).astype(np.float64)
    return Frauds(at, card, merchant, paid, channel, code, _steps(sizes))

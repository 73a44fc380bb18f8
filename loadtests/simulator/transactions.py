"""The stream of transactions: genuine ones at a steady rate, frauds among them, and disturbances.

The stream is generated in blocks of fixed length, however it is read, so the same arguments give the same
bytes.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from feature_store.errors import FraudError
from loadtests.simulator import countries, disturbances
from loadtests.simulator.batch import I64, EventBatch
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.randomness import generator, mix, salt
from loadtests.simulator.scenarios import Campaigns, FraudMix, Frauds
from loadtests.simulator.world import ECOM, F64, FAVOURITES, I32, World

BLOCK = 8_192
"""Genuine transactions per block. Another value gives other transactions for the same seed."""
_TRAVELLERS = 0.015
"""Share of the cards that are abroad with their owners at any one time."""
_MAX_TIME = 253_402_300_799_999


class Stream:
    """All transactions of a world from a start time on; each reading begins at the start."""

    def __init__(
        self,
        world: World,
        rate: float,
        start_ms: int,
        *,
        fraud: FraudMix | None = None,
        disturbances: Disturbances | None = None,
    ) -> None:
        """Create a stream.

        Args:
            rate: transactions per second of simulated time, without duplicates.
            start_ms: first arrival, ms since 1970-01-01 UTC; another start time gives another stream.
            fraud: fraud mix; default: 1 % of fraud, of all four scenarios.
            disturbances: default: a little of everything.
        """
        if not 0.001 <= rate <= 10_000_000:
            raise FraudError(f"rate {rate} is out of range; give 0.001 to 10,000,000 events a second")
        if not 0 <= start_ms <= _MAX_TIME:
            raise FraudError(f"start {start_ms} is out of range; give ms since 1970-01-01 UTC")
        self.world, self.rate, self.start_ms = world, rate, start_ms
        self.fraud = fraud or FraudMix()
        self.disturbances = disturbances or Disturbances()
        self._step_ms = 1_000 / (rate * (1 - self.fraud.share))
        # a trip lasts as long as about twelve payments: six days for a card used twice a day
        rhythm = len(world.cards.ids) / rate * 1_000
        self._trip_ms = float(np.clip(12 * rhythm, 600_000, 14 * 86_400_000))
        self._salt = salt(world.seed, "transactions", start_ms)

    def blocks(self, *, events: int | None = None, until_ms: int | None = None) -> Iterator[EventBatch]:
        """Yield the stream in its own blocks of about `BLOCK` records, which is cheapest."""
        remaining = events
        for block in self._endless():
            if until_ms is not None:
                block = block.take(slice(0, int(np.searchsorted(block.arrival, until_ms, side="left"))))
            if remaining is not None:
                block = block.take(slice(0, remaining))
                remaining -= len(block)
            if not len(block):
                return
            yield block
            if remaining == 0:
                return

    def _endless(self) -> Iterator[EventBatch]:
        campaigns = Campaigns(self.world, self.rate, self.start_ms, self.fraud)
        late_copies: EventBatch | None = None
        block = 0
        while True:
            rng = generator(self.world.seed, "transactions", self.start_ms, block)
            end_ms = self.start_ms + (block + 1) * BLOCK * self._step_ms
            batch = self._disturbed(rng, self._block(rng, block, campaigns.until(end_ms)))
            again, delay = disturbances.repeats(rng, self.disturbances, batch.disturbance)
            copies = self._copies(batch, again, delay)
            waiting = copies if late_copies is None else EventBatch.concat([late_copies, copies])
            due = waiting.arrival < end_ms
            late_copies = waiting.take(~due)
            merged = EventBatch.concat([batch, waiting.take(due)])
            yield merged.take(np.argsort(merged.arrival, kind="stable"))
            block += 1

    def _block(self, rng: np.random.Generator, block: int, frauds: Frauds) -> EventBatch:
        """Return the genuine transactions of one block and the frauds of its time, undisturbed."""
        at = self.start_ms + (block * BLOCK + np.arange(BLOCK) + rng.random(BLOCK)) * self._step_ms
        card = self.world.cards.pick(rng.random(BLOCK))
        merchant, channel = self._merchants(rng, at, card)
        usual = self.world.cards.mean_amount[card] * self.world.merchants.amount_factor[merchant]
        amount = np.round(np.clip(usual * np.exp(rng.normal(-0.18, 0.6, BLOCK)), 0.5, 25_000), 2)
        order = np.argsort(np.concatenate([at, frauds.at]), kind="stable")
        count = len(order)
        arrival = np.concatenate([at, frauds.at])[order].astype(np.int64)
        counter = np.arange(count, dtype=np.uint64) + np.uint64(block << 24)
        return EventBatch(
            world=self.world,
            arrival=arrival,
            event_time=arrival,
            number=mix(counter ^ self._salt),
            card=np.concatenate([card, frauds.card])[order],
            merchant=np.concatenate([merchant, frauds.merchant])[order],
            amount=np.concatenate([amount, frauds.amount])[order],
            channel=np.concatenate([channel, frauds.channel])[order],
            scenario=np.concatenate([np.zeros(BLOCK, np.int8), frauds.scenario])[order],
            disturbance=np.zeros(count, np.int8),
        )

    def _merchants(self, rng: np.random.Generator, at: F64, card: I32) -> tuple[I32, npt.NDArray[np.int8]]:
        """Return merchants and channels of genuine payments: favourites, nearby, online, or on a trip."""
        shops, home = self.world.merchants, self.world.cards.country[card]
        kind, u, by_net = rng.random((3, BLOCK))
        merchant = self.world.cards.favourites[card, (u * FAVOURITES).astype(np.int64)]
        nearby = np.flatnonzero(kind >= 0.75)
        merchant[nearby] = shops.pick(home[nearby], u[nearby])
        remote = np.flatnonzero(kind >= 0.97)
        merchant[remote] = shops.pick_anywhere(u[remote])
        channel = shops.channel(merchant, by_net)
        channel[remote] = ECOM
        # time is cut into periods of one trip: a hash of card and period decides, without state, who travels
        draw = mix(
            card.astype(np.uint64) ^ (at / self._trip_ms).astype(np.uint64) << np.uint64(32) ^ self._salt
        )
        away = np.flatnonzero((draw & np.uint64(0xFFFF)) < _TRAVELLERS * 0x10000)
        hop = 1 + (draw[away] >> np.uint64(16)) % np.uint64(len(countries.COUNTRIES) - 1)
        abroad = (home[away] + hop.astype(np.int64)) % len(countries.COUNTRIES)
        merchant[away] = shops.pick(abroad, u[away], present=True)
        channel[away] = shops.by_hand(merchant[away])
        return merchant, channel

    def _disturbed(self, rng: np.random.Generator, batch: EventBatch) -> EventBatch:
        codes = disturbances.choose(rng, self.disturbances, len(batch))
        shifted = np.clip(batch.event_time + disturbances.shift(rng, codes), 0, _MAX_TIME)
        return replace(batch, event_time=shifted, disturbance=codes)

    def _copies(self, batch: EventBatch, again: I64, delay: I64) -> EventBatch:
        """Return delayed copies of records."""
        copies = batch.take(again)
        code = np.full(len(copies), disturbances.DUPLICATE, np.int8)
        return replace(copies, arrival=copies.arrival + delay, disturbance=code)

"""Profile changes during a stream: blocks, limits, risk tiers, opened and closed accounts."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import psycopg

from loadtests.simulator import profiles
from loadtests.simulator.profiles import COLUMNS
from loadtests.simulator.randomness import generator
from loadtests.simulator.scenarios import STOLEN, Campaigns, FraudMix
from loadtests.simulator.world import World
from service.background import Background


class Change(StrEnum):
    """Kinds of profile changes."""

    BLOCK = "block"
    UNBLOCK = "unblock"
    LIMIT = "limit"
    TIER = "tier"
    INSERT = "insert"
    DELETE = "delete"


_SHARES = {
    Change.LIMIT: 0.45,
    Change.TIER: 0.20,
    Change.INSERT: 0.15,
    Change.DELETE: 0.08,
    Change.BLOCK: 0.06,
    Change.UNBLOCK: 0.06,
}
_NOTICED_AT = 5
"""Step of a stolen card's campaign at which the card is blocked, if the theft is noticed; later steps are
declined."""
_NOTICED = 0.7
_WINDOW_MS = 1_000.0

_SQL = {
    Change.BLOCK: "update card_profiles set status = 'blocked' where card_id = %(card_id)s",
    Change.UNBLOCK: "update card_profiles set status = 'active' where card_id = %(card_id)s",
    Change.LIMIT: "update card_profiles set credit_limit = %(credit_limit)s where card_id = %(card_id)s",
    Change.TIER: "update card_profiles set risk_tier = %(risk_tier)s where card_id = %(card_id)s",
    Change.DELETE: "delete from card_profiles where card_id = %(card_id)s",
    Change.INSERT: f"insert into card_profiles ({', '.join(COLUMNS)}) "
    f"values ({', '.join(f'%({name})s' for name in COLUMNS)}) on conflict (card_id) do nothing",
}


@dataclass(frozen=True)
class ProfileChange:
    """One change of one row."""

    at_ms: float
    """Time of the change, ms since 1970-01-01 UTC."""
    change: Change
    values: dict[str, object]
    """Parameters of the statement: card_id and the changed columns."""

    @property
    def sql(self) -> str:
        """SQL statement with psycopg's placeholders for `values`."""
        return _SQL[self.change]


class ProfileChurn:
    """All profile changes of one stream, determined by the arguments."""

    def __init__(
        self,
        world: World,
        rate: float,
        start_ms: int,
        *,
        changes_per_s: float = 2.0,
        fraud: FraudMix | None = None,
    ) -> None:
        """Prepare the changes.

        Args:
            rate: rate of the stream of transactions, per second.
            changes_per_s: rate of changes unrelated to fraud; 0: none.
        """
        self.start_ms = start_ms
        self._world, self._per_s = world, changes_per_s
        self._campaigns = Campaigns(world, rate, start_ms, fraud or FraudMix())
        self._rng = generator(world.seed, "churn", start_ms)
        self._blocked: deque[int] = deque()
        self._absent: deque[int] = deque(np.flatnonzero(~world.cards.has_profile).tolist())

    def changes(self) -> Iterator[ProfileChange]:
        """Yield changes in time order, endlessly."""
        end_ms = float(self.start_ms)
        while True:
            begin_ms, end_ms = end_ms, end_ms + _WINDOW_MS
            frauds = self._campaigns.until(end_ms)
            noticed = (frauds.scenario == STOLEN) & (frauds.step == _NOTICED_AT)
            noticed &= self._rng.random(len(frauds)) < _NOTICED
            everyday = int(self._rng.poisson(self._per_s * _WINDOW_MS / 1_000))
            times = begin_ms + self._rng.random(everyday) * _WINDOW_MS
            due = [(at, card) for at, card in zip(frauds.at[noticed], frauds.card[noticed], strict=True)]
            due += [(at, None) for at in times]
            for at, card in sorted(due, key=lambda pair: pair[0]):
                yield self._block(float(at), int(card)) if card is not None else self._everyday(float(at))

    def _block(self, at_ms: float, card: int) -> ProfileChange:
        self._blocked.append(card)
        return self._change(at_ms, Change.BLOCK, card)

    def _everyday(self, at_ms: float) -> ProfileChange:
        change = list(_SHARES)[int(self._rng.choice(len(_SHARES), p=list(_SHARES.values())))]
        card = int(self._rng.integers(len(self._world.cards.ids)))
        if change is Change.BLOCK:
            return self._block(at_ms, card)
        if change is Change.UNBLOCK and self._blocked:
            return self._change(at_ms, change, self._blocked.popleft())
        if change is Change.INSERT and self._absent:
            new = self._absent.popleft()
            return ProfileChange(at_ms, change, profiles.row(self._world, new))
        if change is Change.DELETE:
            self._absent.append(card)
            return self._change(at_ms, change, card)
        if change is Change.TIER:
            return self._change(at_ms, change, card, risk_tier=int(self._rng.integers(4)))
        limit = float(np.round(self._world.cards.credit_limit[card] * self._rng.uniform(0.5, 2.0), 2))
        return self._change(at_ms, Change.LIMIT, card, credit_limit=limit)

    def _change(self, at_ms: float, change: Change, card: int, **values: object) -> ProfileChange:
        return ProfileChange(at_ms, change, {"card_id": self._world.cards.ids[card].as_py(), **values})


class ProfileFeed(Background):
    """Thread that applies changes to Postgres at their times."""

    def __init__(self, dsn: str, churn: ProfileChurn) -> None:
        """Prepare the thread.

        Args:
            dsn: libpq URI or keywords.
            churn: the changes, whose times are real ones.
        """
        super().__init__("profile-feed", patience_s=None)
        self._dsn, self._churn = dsn, churn
        self._fault: Exception | None = None
        self.applied = 0
        """Number of executed statements."""

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        super().stop()
        self.check()

    def check(self) -> None:
        """Raise the error that ended the thread, if any; that of a connection or change is a ProfileError."""
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                for change in self._churn.changes():
                    if self._stop.wait(max(0.0, change.at_ms / 1_000 - time.time())):
                        return
                    connection.execute(change.sql, change.values)
                    self.applied += 1
        except psycopg.Error as error:
            self._fault = profiles.profile_error(error)
        except Exception as error:  # a thread's error would otherwise be printed, and the run would go on
            self._fault = error

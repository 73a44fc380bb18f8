"""Profiles of the cards into Postgres: the load before a stream starts."""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from feature_store.errors import FraudError
from loadtests.simulator import countries
from loadtests.simulator.world import STATUSES, World

COLUMNS = ("card_id", "status", "home_country", "currency", "credit_limit", "risk_tier", "opened_on")
_CHUNK = 100_000
_EPOCH = date(1970, 1, 1)


class ProfileError(FraudError):
    """Postgres did not take the profiles."""


@dataclass(frozen=True)
class Loaded:
    """What an initial load did."""

    rows: int
    """Profiles of the world."""
    written: int
    """Of them inserted or changed; the others were there already."""


def profiles(world: World, cards: np.ndarray) -> pa.Table:
    """Profiles as the profile contract has them: `COLUMNS`, opened_on in days since 1970-01-01.

    Args:
        world: whose cards.
        cards: int[n], card numbers.
    """
    known = world.cards
    home = known.country[cards]
    return pa.table(
        {
            "card_id": known.ids.take(pa.array(cards)),
            "status": pa.array(STATUSES[known.status[cards]].tolist(), pa.string()),
            "home_country": pa.array(countries.CODES[home].tolist(), pa.string()),
            "currency": pa.array(countries.CURRENCIES[home].tolist(), pa.string()),
            "credit_limit": pa.array(known.credit_limit[cards]),
            "risk_tier": pa.array(known.risk_tier[cards]),
            "opened_on": pa.array(known.opened_on[cards]),
        }
    )


def row(world: World, card: int) -> dict[str, object]:
    """One profile as values for SQL: `COLUMNS`, opened_on as a date."""
    values: dict[str, Any] = profiles(world, np.array([card])).to_pylist()[0]
    return values | {"opened_on": _EPOCH + timedelta(days=values["opened_on"])}


def _copy_lines(table: pa.Table) -> bytes:
    """A table as text for COPY: tabs between columns; no value needs escaping."""
    opened = table.column("opened_on").cast(pa.date32())
    columns = [*(table.column(name) for name in COLUMNS[:-1]), opened]
    texts = [column.combine_chunks().cast(pa.string()) for column in columns]
    lines = pc.binary_join_element_wise(*texts, "\t")
    return ("\n".join(lines.to_pylist()) + "\n").encode()


class ProfileLoader:
    """The initial load. Running it again puts every profile of the world back as it was."""

    def __init__(self, dsn: str) -> None:
        """Remember where.

        Args:
            dsn: libpq URI or keywords.
        """
        self._dsn = dsn

    def load(self, world: World) -> Loaded:
        """Write the profiles of all cards with `has_profile`, in one transaction; right rows stay untouched.

        Raises:
            ProfileError: no server, no table, or a row was refused.
        """
        cards = np.flatnonzero(world.cards.has_profile)
        columns = ", ".join(COLUMNS)
        try:
            with psycopg.connect(self._dsn) as connection, connection.cursor() as cursor:
                cursor.execute(
                    f"create temp table loaded on commit drop as select {columns} from card_profiles limit 0"
                )
                with cursor.copy(f"copy loaded ({columns}) from stdin") as copy:
                    for start in range(0, len(cards), _CHUNK):
                        copy.write(_copy_lines(profiles(world, cards[start : start + _CHUNK])))
                # an update of an equal row would be a change event for nothing
                cursor.execute(
                    f"insert into card_profiles as old ({columns}) select {columns} from loaded "
                    f"on conflict (card_id) do update set ({', '.join(COLUMNS[1:])}) = "
                    f"row({', '.join('excluded.' + name for name in COLUMNS[1:])}) "
                    f"where ({', '.join('old.' + name for name in COLUMNS[1:])}) is distinct from "
                    f"({', '.join('excluded.' + name for name in COLUMNS[1:])})"
                )
                return Loaded(len(cards), cursor.rowcount)
        except psycopg.Error as error:
            raise explained(error) from error


def explained(error: psycopg.Error) -> ProfileError:
    """A Postgres error as one line with what to do."""
    text = " ".join(str(error).split())
    if isinstance(error, psycopg.errors.UndefinedTable):
        return ProfileError("table card_profiles does not exist; `fraud stack up` creates it")
    if isinstance(error, psycopg.OperationalError):
        return ProfileError(f"no Postgres ({text}); start it with `fraud stack up` or correct --postgres-dsn")
    return ProfileError(
        f"Postgres refused the profiles: {text}; compare the table with deploy/local/card_profiles.sql"
    )

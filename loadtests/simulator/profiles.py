"""Initial load of the cards' profiles into Postgres."""

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
    """Postgres did not accept the profiles.

    Check the connection and the table.
    """


@dataclass(frozen=True)
class Loaded:
    """Result of an initial load."""

    rows: int
    """Number of profiles in the load."""
    written: int
    """Number of rows inserted or changed; the others were up to date."""


def profiles(world: World, cards: np.ndarray) -> pa.Table:
    """Return profiles as in the profile contract: `COLUMNS`, opened_on in days since 1970-01-01.

    Args:
        cards: card numbers, int[n].
    """
    all_cards = world.cards
    home = all_cards.country[cards]
    return pa.table(
        {
            "card_id": all_cards.ids.take(pa.array(cards)),
            "status": pa.array(STATUSES[all_cards.status[cards]].tolist(), pa.string()),
            "home_country": pa.array(countries.CODES[home].tolist(), pa.string()),
            "currency": pa.array(countries.CURRENCIES[home].tolist(), pa.string()),
            "credit_limit": pa.array(all_cards.credit_limit[cards]),
            "risk_tier": pa.array(all_cards.risk_tier[cards]),
            "opened_on": pa.array(all_cards.opened_on[cards]),
        }
    )


def row(world: World, card: int) -> dict[str, object]:
    """Return one profile as values for SQL: `COLUMNS`, opened_on as a date."""
    values: dict[str, Any] = profiles(world, np.array([card])).to_pylist()[0]
    return values | {"opened_on": _EPOCH + timedelta(days=values["opened_on"])}


def _copy_lines(table: pa.Table) -> bytes:
    """Return a table as text for COPY: tab-separated; no value needs escaping."""
    opened = table.column("opened_on").cast(pa.date32())
    columns = [*(table.column(name) for name in COLUMNS[:-1]), opened]
    texts = [column.combine_chunks().cast(pa.string()) for column in columns]
    lines = pc.binary_join_element_wise(*texts, "\t")
    return ("\n".join(lines.to_pylist()) + "\n").encode()


def load(dsn: str, world: World) -> Loaded:
    """Write the profiles of all cards with `has_profile` into Postgres, in one transaction.

    Loading again resets these profiles; equal rows stay untouched, as do rows of other cards.

    Args:
        dsn: libpq URI or keywords.

    Raises:
        ProfileError: no server, no table, or a row was refused.
    """
    cards = np.flatnonzero(world.cards.has_profile)
    columns = ", ".join(COLUMNS)
    try:
        with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
            cursor.execute(
                f"create temp table loaded on commit drop as select {columns} from card_profiles limit 0"
            )
            with cursor.copy(f"copy loaded ({columns}) from stdin") as copy:
                for start in range(0, len(cards), _CHUNK):
                    copy.write(_copy_lines(profiles(world, cards[start : start + _CHUNK])))
            # an update of an equal row would be a needless change event
            cursor.execute(
                f"insert into card_profiles as old ({columns}) select {columns} from loaded "
                f"on conflict (card_id) do update set ({', '.join(COLUMNS[1:])}) = "
                f"row({', '.join('excluded.' + name for name in COLUMNS[1:])}) "
                f"where ({', '.join('old.' + name for name in COLUMNS[1:])}) is distinct from "
                f"({', '.join('excluded.' + name for name in COLUMNS[1:])})"
            )
            return Loaded(len(cards), cursor.rowcount)
    except psycopg.Error as error:
        raise profile_error(error) from error


def profile_error(error: psycopg.Error) -> ProfileError:
    """Return a Postgres error as a one-line error that says what to do."""
    text = " ".join(str(error).split())
    if isinstance(error, psycopg.errors.UndefinedTable):
        return ProfileError("table card_profiles does not exist; `fraud stack up` creates it")
    if isinstance(error, psycopg.OperationalError):
        return ProfileError(f"no Postgres ({text}); start it with `fraud stack up` or correct --postgres-dsn")
    return ProfileError(
        f"Postgres refused the profiles: {text}; compare the table with deploy/local/card_profiles.sql"
    )

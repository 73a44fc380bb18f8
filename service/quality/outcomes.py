"""Alerts of 130 days and the labels of their transactions, joined and counted in an SQLite database.

Labels arrive weeks after their alerts, or are read before them, and some records are read twice. The database
has a row for each transaction with an alert or a label. Its key is a 64-bit hash of card id and transaction
id: among the 112 million alerts of 130 days at ten a second, two have the same hash with a probability of
0.03 %. A repeated record changes nothing, and of a transaction's labels the last one by arrival counts, so
the counts depend on the records, not on their order.

Each SQLite transaction (`take`) also stores the offsets up to which the topics have been read. So a sidecar
that was killed continues where the last SQLite transaction ended, and counts nothing twice. One thread reads
the topics (`reader`); those that ask for `counts` share the database with it. The rows of days
before the last DAYS are not counted any more; they are deleted one slice of the hashes after another, because
an index by day would nearly double the file.
"""

import hashlib
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from feature_store.utc import day_of
from service.labels.errors import OutcomesError
from service.labels.records import Alert, Kind, Label
from service.quality.counts import FRAUD, GENUINE, OPEN, Count
from streaming_job.log.records import PartitionId

DAYS = 130
"""Days of alerts that are counted: issuers may report a fraud up to 120 days after the payment."""
SLICES = 4096
"""Parts of the hashes, of which one is cleared of old rows in each SQLite transaction."""
FORMAT = 1
CACHE_KIB = 32 * 1024
TABLES = ("transactions", "kinds", "counts", "positions")
SCHEMA = f"""
    BEGIN;
    {" ".join(f"DROP TABLE IF EXISTS {table};" for table in TABLES)}
    CREATE TABLE transactions (
        hash INTEGER PRIMARY KEY, day INTEGER NOT NULL, kind INTEGER,
        fraud INTEGER, label_arrival INTEGER, label_topic INTEGER, label_offset INTEGER
    );
    CREATE TABLE kinds (kind INTEGER PRIMARY KEY, names TEXT NOT NULL UNIQUE);
    CREATE TABLE counts (
        day INTEGER, kind INTEGER, outcome TEXT, alerts INTEGER NOT NULL, PRIMARY KEY (day, kind, outcome)
    ) WITHOUT ROWID;
    CREATE TABLE positions (
        topic TEXT, topic_id TEXT, number INTEGER, next INTEGER, PRIMARY KEY (topic, number)
    ) WITHOUT ROWID;
    PRAGMA user_version = {FORMAT};
    COMMIT;
"""


_Row = tuple[int, int | None, int | None, int | None, int | None, int | None]
"""Of `transactions`, without the hash. `kind` is NULL without an alert, what follows it without a label."""


class Outcomes:
    """The database; thread-safe."""

    def __init__(self, file: Path | None, days: int = DAYS) -> None:
        """Open nothing yet.

        Args:
            file: the database; None: a temporary file, which ends with the process.
            days: number of days to count, up to that of the newest alert.
        """
        self._file, self._days = file, days
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._topic_ids: Mapping[str, str] = {}
        """Of the topics that are read, from `resume`."""
        self._kinds: dict[Kind, int] = {}
        self._newest: int | None = None
        """Day of the newest alert."""
        self._slice = 0
        """The next slice to clear of old rows."""
        self._changes = Counter[tuple[int, int, str]]()
        """(day, kind, outcome) -> what the current SQLite transaction adds to `counts`."""

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def resume(self, topic_ids: Mapping[str, str], alerts: str) -> dict[PartitionId, int]:
        """Return where to continue: the offset of each partition that has been read.

        A topic that has not been read yet, or was created again since, has no offsets. If it is the topic of
        alerts, the alerts counted so far are those of another log: the database is emptied, and the labels
        are read again, too.

        Args:
            topic_ids: name -> id in its cluster, of the topics of alerts and labels.
        """
        with self._transaction(may_open=True) as database:
            stored = database.execute("SELECT topic, topic_id, number, next FROM positions").fetchall()
            offsets = {
                (topic, number): offset
                for topic, topic_id, number, offset in stored
                if topic_ids.get(topic) == topic_id
            }
            if self._newest is not None and all(topic != alerts for topic, _ in offsets):
                offsets = {}
                for table in TABLES:
                    database.execute(f"DELETE FROM {table}")
                self._begin_anew(newest=None)
            for topic in topic_ids.keys() - {topic for topic, _ in offsets}:
                database.execute("DELETE FROM positions WHERE topic = ?", (topic,))
            self._topic_ids = topic_ids
            return offsets

    def take(self, records: Sequence[Alert | Label], offsets: Mapping[PartitionId, int]) -> None:
        """Count records, and store how far the topics have been read with them, in one SQLite transaction.

        Args:
            records: alerts and labels; those that were taken already change nothing.
            offsets: partition -> offset after the last record read; those without new records may be missing.

        Raises:
            OutcomesError: the database cannot be used; nothing was counted. Continue with `resume`.
        """
        if not records and not offsets and self._slice >= SLICES:
            return
        with self._transaction() as database:
            for record in records:
                if isinstance(record, Alert):
                    self._alert(database, record)
                else:
                    self._label(database, record)
            database.executemany(
                "INSERT INTO counts VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET alerts = alerts + excluded.alerts",
                ((*key, by) for key, by in self._changes.items() if by),
            )
            database.executemany(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)",
                ((name, self._topic_ids[name], part, offset) for (name, part), offset in offsets.items()),
            )
            self._expire(database)

    def counts(self) -> list[Count]:
        """Return the counts that are not 0; none if the database cannot be used."""
        with self._lock:
            try:
                rows = self._counted()
            except sqlite3.Error:
                return []  # the reader says why
        kinds = {
            names: tuple((by, name) for by, name in json.loads(names)) for names in {row[1] for row in rows}
        }
        return [Count(day, kinds[names], outcome, alerts) for day, names, outcome, alerts in rows]

    def _counted(self) -> list[tuple[int, str, str, int]]:
        if self._database is None:
            return []
        return self._database.execute(
            "SELECT day, names, outcome, alerts FROM counts JOIN kinds USING (kind) "
            "WHERE alerts > 0 AND day >= ?",
            (self._first_day(),),
        ).fetchall()

    def _first_day(self) -> int:
        """Return the first day that is counted."""
        return 0 if self._newest is None else self._newest - self._days + 1

    def _alert(self, database: sqlite3.Connection, alert: Alert) -> None:
        day = day_of(alert.position[0])
        if day < self._first_day():
            return
        key = _hash(alert.card_id, alert.transaction_id)
        row = self._row(database, key)
        if row is not None and row[1] is not None:
            return  # a repetition
        if self._newest is None or day > self._newest:
            self._newest, self._slice = day, 0
        kind = self._kind(database, alert.kind)
        label = (None,) * 4 if row is None else row[2:]
        database.execute(
            "INSERT OR REPLACE INTO transactions VALUES (?, ?, ?, ?, ?, ?, ?)", (key, day, kind, *label)
        )
        self._changes[day, kind, _outcome(label[0])] += 1

    def _label(self, database: sqlite3.Connection, label: Label) -> None:
        key = _hash(label.card_id, label.transaction_id)
        row = self._row(database, key)
        if row is None:
            row = day_of(label.position[0]), None, None, None, None, None
            if row[0] < self._first_day():
                return
        day, kind, fraud, *position = row
        if fraud is not None and tuple(position) >= label.position:
            return
        if kind is None:
            day = day_of(label.position[0])
        else:
            self._changes[day, kind, _outcome(fraud)] -= 1
            self._changes[day, kind, _outcome(label.fraud)] += 1
        database.execute(
            "INSERT OR REPLACE INTO transactions VALUES (?, ?, ?, ?, ?, ?, ?)",
            (key, day, kind, int(label.fraud), *label.position),
        )

    def _row(self, database: sqlite3.Connection, key: int) -> _Row | None:
        """Return a transaction's row; None if there is none, or only one of a day that is not counted."""
        row: _Row | None = database.execute(
            "SELECT day, kind, fraud, label_arrival, label_topic, label_offset FROM transactions "
            "WHERE hash = ?",
            (key,),
        ).fetchone()
        return None if row is None or row[0] < self._first_day() else row

    def _kind(self, database: sqlite3.Connection, kind: Kind) -> int:
        number = self._kinds.get(kind)
        if number is None:
            names = json.dumps(kind)
            database.execute("INSERT OR IGNORE INTO kinds (names) VALUES (?)", (names,))
            number = int(database.execute("SELECT kind FROM kinds WHERE names = ?", (names,)).fetchone()[0])
            self._kinds[kind] = number
        return number

    def _expire(self, database: sqlite3.Connection) -> None:
        """Delete the counts of old days, and the old rows of one slice."""
        if self._slice == 0:
            database.execute("DELETE FROM counts WHERE day < ?", (self._first_day(),))
        if self._slice < SLICES:
            width = 2**64 // SLICES
            low = -(2**63) + self._slice * width
            database.execute(
                "DELETE FROM transactions WHERE hash BETWEEN ? AND ? AND day < ?",
                (low, low + width - 1, self._first_day()),
            )
            self._slice += 1

    def _begin_anew(self, newest: int | None) -> None:
        """Make what is known of the database that of one just opened."""
        self._newest, self._slice = newest, 0
        self._kinds.clear()

    @contextmanager
    def _transaction(self, *, may_open: bool = False) -> Iterator[sqlite3.Connection]:
        """One SQLite transaction under the lock; if it fails, the database is closed."""
        with self._lock:
            try:
                if self._database is None and may_open:
                    self._database = self._open()
            except (sqlite3.Error, OSError) as fault:
                raise self._failed(fault) from fault
            if self._database is None:
                raise OutcomesError("the database of the live precision is closed")
            try:
                self._changes.clear()
                with self._database as database:
                    database.execute("BEGIN")
                    yield database
            except BaseException as fault:
                # what is known of the database may not be true of it any more
                self._database.close()
                self._database = None
                if isinstance(fault, sqlite3.Error):
                    raise self._failed(fault) from fault
                raise

    def _failed(self, fault: Exception) -> OutcomesError:
        return OutcomesError(
            f"alerts cannot be counted in {self._file or 'a temporary file'}: {fault}; give each sidecar a "
            "work directory of its own that is writable and has room; if the file is damaged, delete it"
        )

    def _open(self) -> sqlite3.Connection:
        if self._file is not None:  # hashes of cards are nobody else's business; the WAL has the file's mode
            for directory in (self._file.parent.parent, self._file.parent):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file.touch(mode=0o600)
        # with an empty name SQLite creates a temporary file
        database = sqlite3.connect(
            self._file or "", timeout=1.0, isolation_level=None, check_same_thread=False
        )
        # exclusive: no second sidecar, and no file of shared memory
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        if database.execute("PRAGMA user_version").fetchone()[0] != FORMAT:
            database.executescript(SCHEMA)
        self._begin_anew(newest=database.execute("SELECT max(day) FROM counts").fetchone()[0])
        return database


def _hash(card_id: str, transaction_id: str) -> int:
    """Return 64 bits as SQLite's signed integer."""
    digest = hashlib.blake2b(orjson.dumps([card_id, transaction_id]), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _outcome(fraud: int | None) -> str:
    return OPEN if fraud is None else FRAUD if fraud else GENUINE

"""State of a continuous audit between its steps, in memory and in a file; only of the cards in its sample.

By the sizes of the Python objects, a transaction takes about 0.8 kB and a card another 1 kB. Of each card,
the transactions of the last 38 days up to its newest one are kept: the longest window (30 days), the allowed
lateness (counted as at least 7 days) and a day. A card without transactions for 91 days is dropped. An audit
thus needs about 0.8 kB for each transaction of its sample in 38 days, and 1 kB for each card.
"""

import io
import os
import pickle
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feature_store.errors import FraudError
from loadtests.audit.comparison import OUTPUTS, UncomparedRecords
from loadtests.audit.findings import Findings
from loadtests.audit.settled import SettledPoints
from loadtests.oracle import CARD_TABLES, CardTable, ProfileLog, Record, SchemaLog
from loadtests.oracle.card import DAY_MS, FORGET_AFTER_MS, MONTH_MS, REPEAT_MS, Card
from streaming_job.log.records import PartitionId
from streaming_job.settings import JobSettings

VERSION = (9, *CARD_TABLES, *OUTPUTS)
KEEP_SETTLED_MS = 8 * DAY_MS
"""A second output record is recognised as a duplicate for this long after its input record."""
OURS = (
    "loadtests.",
    "models.policy",
    "models.registry",
    "streaming_job.contracts",
    "streaming_job.log.losses",
)
PLAIN = {
    ("collections", "Counter"),
    ("collections", "defaultdict"),
    ("builtins", "set"),
    ("builtins", "dict"),
}


class MemoryFileError(FraudError):
    """The file of `--state` is damaged, or belongs to another job, sample, allowed lateness or release.

    Pass the right file; or remove it: the log is then read from its beginning.
    """


@dataclass
class History:
    """What the rollouts of one topic have decided: all of the log, aloud or in silence."""

    events: list[Record] = field(default_factory=list)
    """All records of the topic so far."""
    unavailable: set[int] = field(default_factory=set)
    """Offsets of the proposals that the job refused because a model was unavailable."""
    cards: dict[str, Card] = field(default_factory=dict)
    """The cards with the alerts that these rollouts decide."""
    positions: dict[PartitionId, int] = field(default_factory=dict)
    """Next transaction to judge, by partition."""

    def drop(self) -> None:
        """Drop the cards of rollouts that do not decide any more."""
        self.cards.clear()
        self.positions.clear()


@dataclass
class Memory:
    """The state that a step takes over from the previous steps."""

    job_id: str
    share: float
    lateness_ms: int
    points: SettledPoints
    found: UncomparedRecords
    positions: dict[PartitionId, int] = field(default_factory=dict)
    """Next offset to read, by partition of every topic; for the transactions the next to compare."""
    complete_from_ms: int = 0
    """Transactions before this arrival (ms) only build up cards: outputs of that time were deleted."""
    tables: dict[str, CardTable] = field(
        default_factory=lambda: {name: table() for name, table in CARD_TABLES.items()}
    )
    """See CARD_TABLES."""
    schemas: SchemaLog = field(default_factory=SchemaLog)
    histories: defaultdict[str, History] = field(default_factory=lambda: defaultdict(History))
    """By topic of rollouts: a switch to a replay changes it, and so does the way back."""
    arrivals: dict[PartitionId, int] = field(default_factory=dict)
    """Newest judged arrival, by partition of the transactions, ms."""
    days: list[tuple[int, dict[PartitionId, int]]] = field(default_factory=list)
    """(day of arrival since 1970-01-01, the audit's transaction positions when it reached that day)."""

    @property
    def profiles(self) -> ProfileLog:
        """The profiles among the tables."""
        profiles = self.tables["profiles"]
        assert isinstance(profiles, ProfileLog)
        return profiles

    @classmethod
    def empty(cls, settings: JobSettings, share: float = 1.0, behind_s: float = 0.0) -> "Memory":
        """Return the state before anything was read; by default of an audit of everything."""
        points = SettledPoints(settings.topics, settings.job_id, behind_s)
        found = UncomparedRecords(Findings(), settings.topics)
        return cls(settings.job_id, share, settings.allowed_lateness_ms, points, found)

    def forget(self) -> None:
        """Drop the state that no later record can need; act only once per day of arrival."""
        now = min(self.arrivals.values(), default=0)
        day = now // DAY_MS
        if not now or (self.days and self.days[-1][0] >= day):
            return
        self.days.append((day, {partition: self.positions.get(partition, 0) for partition in self.arrivals}))
        while len(self.days) > 1 and self.days[1][0] * DAY_MS <= now - KEEP_SETTLED_MS:
            del self.days[0]
        if self.days[0][0] * DAY_MS <= now - KEEP_SETTLED_MS:
            self.found.drop_compared(self.days[0][1])
        # a day more than needed, because the arrivals of partitions differ
        reach = MONTH_MS + max(self.lateness_ms, REPEAT_MS) + DAY_MS
        for history in self.histories.values():
            for card_id, card in list(history.cards.items()):
                if now - card.arrival > FORGET_AFTER_MS + DAY_MS:
                    del history.cards[card_id]
                else:
                    card.drop_before(card.arrival - reach)
        for table in self.tables.values():
            table.drop_before(now - reach)

    def save(self, path: Path) -> None:
        """Write the state, except the findings, to a file atomically, with permissions for this user only."""
        findings, self.found.findings = self.found.findings, Findings()
        try:
            blob = pickle.dumps((VERSION, self), protocol=5)
        finally:
            self.found.findings = findings
        new = path.with_name(f"{path.name}.new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    @classmethod
    def load(cls, path: Path, settings: JobSettings, share: float, behind_s: float) -> "Memory":
        """Load the state of an audit of the same job and sample.

        Raises:
            MemoryFileError: the file is of another job, share, allowed lateness or version, or cannot be read
                as a state file.
        """
        try:
            version, memory = _Plain(io.BytesIO(path.read_bytes())).load()
        except Exception as fault:
            raise MemoryFileError(
                f"{path} cannot be read: {fault}; remove it to read the log from its beginning"
            ) from fault
        if version != VERSION or not isinstance(memory, cls):
            raise MemoryFileError(
                f"{path} is of another release; remove it to read the log from its beginning"
            )
        saved, current = (memory.job_id, memory.share), (settings.job_id, share)
        if saved != current or memory.lateness_ms != settings.allowed_lateness_ms:
            raise MemoryFileError(
                f"{path} is of job {saved[0]}, share {saved[1]}, allowed lateness {memory.lateness_ms} ms; "
                f"this audit is of job {current[0]}, share {current[1]}, {settings.allowed_lateness_ms} ms; "
                "give another file, or remove it to read the log from its beginning"
            )
        memory.points.behind_s = behind_s
        return memory


class _Plain(pickle.Unpickler):
    """Unpickles only the classes of an audit's state, so that a foreign file cannot run other code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in PLAIN or (module.startswith(OURS) and "." not in name):
            cls = super().find_class(module, name)
            if isinstance(cls, type):
                return cls
        raise pickle.UnpicklingError(f"{module}.{name} is no class of an audit's state")
